"""Start PyTorch jobs in milliseconds: a process that has imported torch, and forks.

Most of a cold start is imports: torch, and what the first optimizer pulls in.  The fork server
does both once and then waits on a socket (``server``).  A request carries what a new process
gets from its parent: arguments, environment, folder, limits, standard streams (``request``).
The fork server forks, and the child puts all of it in place and runs the script as the
interpreter would (``child``).  The caller waits for the job as for a process of its own
(``caller``).

What is decided when an interpreter starts cannot be changed by a fork: the executable, and the
variables that Python, malloc, the loader and OpenMP read at once.  So there is one fork server
for each combination, and its socket is named after it.  What cannot be started warm (another
program, ``-c``, options of the interpreter) is started cold; so is everything while there is no
fork server, which is why the death of one costs time and never a job.

A fork copies one thread.  So the fork server has only one: it forks itself once after the
imports, which ends the threads of numpy's BLAS (they come back when used), and CUDA is never
touched.
"""
