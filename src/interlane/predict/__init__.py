"""Estimate what is not known yet: how long jobs will run.

``runs`` is what a predictor sees; ``naive``, ``cart`` and ``recall`` are predictors (fit and
predict, as scikit-learn does it); ``evaluate`` judges them, ``store`` keeps them as data.
"""
