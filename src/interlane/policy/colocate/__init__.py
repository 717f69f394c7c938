"""Functions beside training: who may share a GPU with whom.

``interference`` knows what workloads suffer from each other, ``slowdown`` reads it for whole
GPUs, ``gpus`` says what is left of each and what training may still lose, ``place`` has the
rules: SMore's, ours, and none.
"""
