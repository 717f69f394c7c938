"""Runs, comparisons and frames from Python: ``python from_python.py``."""

import polars as pl

import interlane as il

run = il.simulate("jobs.csv", "lab.yaml", "order=sjf,estimate=user_dur")
print(run)
print(run.frame().select("user", "wait_s").group_by("user").agg(pl.mean("wait_s")).sort("user"))

found = il.compare("jobs.csv", "lab.yaml", ["order=fifo,queue=strict", "order=fifo,queue=easy"])
print(found.leads["mean_wait_s"])
