"""Functions beside training: who may share a GPU with whom.

``slowdown`` reads predicted numbers, ``gpus`` keeps who is where and what training may still
lose, ``place`` has the rules: SMore's and ours.
"""
