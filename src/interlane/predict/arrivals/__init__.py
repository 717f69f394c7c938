"""When functions will be asked next, and how often.

``series`` is what a forecaster sees; ``rules`` are keep-alive rules that everybody knows;
``stream`` turns the past of a function into features, slot by slot; ``chance`` (ours) tells
the probability of a request in the next slot, ``lslstm`` (SMore's) does it with two LSTMs;
``size`` tells how many instances; ``judge`` scores them all alike, ``store`` keeps models.
"""
