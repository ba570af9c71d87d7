"""CrossoverScheduler (arXiv 2103.07974): jobs that share their devices, so that one computes while another communicates.

`merge.py` takes each job's plan apart into phases, schedules the phases of all jobs by the modulo scheduler, says whose turn it
is when, and draws that as text; `merged_plans_file.py` stores it. `runtime/job_turns.py` makes ranks follow it.
"""
