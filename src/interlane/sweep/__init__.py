"""Trials of one command with other parameters: which there are, which go on, which was best.

Pure: a definition gives trials, what trials have printed gives decisions.  Whoever carries
them out (``usecases.sweep``) keeps nothing, so that nothing can be lost with it.
"""
