"""Partition GPUs: the fewest that meet every service's target, as NVIDIA's MIG allows.

``profiles`` and ``layouts`` say what a GPU can be cut into, ``demand`` what is asked for,
``plan`` what an answer looks like, ``optimise`` who answers, ``check`` whether to believe it.
"""
