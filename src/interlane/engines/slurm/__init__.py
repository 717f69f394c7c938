"""A Slurm cluster: jobs that ``sbatch`` brought or that we submit, on the GPUs that we choose.

Slurm owns the truth.  What is ours of it is written into its own records: the *claim* in the
administrator's comment of a job (``claims``), which users cannot write.  Everything else is
read: ``reading`` turns what ``squeue`` and ``sinfo`` print into values, ``machines`` makes
machines of nodes, ``wanted`` makes jobs of Slurm's jobs, ``runs`` says what has become of each
attempt.  ``engine`` decides nothing; it asks Slurm by argument lists (``commands``) and
compares what it saw last with what it sees now.
"""
