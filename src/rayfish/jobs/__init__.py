"""Lists of jobs: commands that each hold what they need of a machine or cluster, and run side by side.

job_list  what is written: Isaac Lab's task_runner files, its wrap_resources' words, our own form
worker    one job inside a worker process      run    places, output, failures, the table
"""

from rayfish.jobs.job_list import Job, JobList, from_words, read_jobs
from rayfish.jobs.run import JobResult, run_and_tell, run_jobs

__all__ = ["Job", "JobList", "JobResult", "from_words", "read_jobs", "run_and_tell", "run_jobs"]
