"""CrossoverScheduler (arXiv 2103.07974): jobs that share their devices, so that one computes while another communicates.

`phases.py` takes each job's plan apart into phases, `merge.py` schedules the phases of all jobs by the modulo scheduler and
says whose turn it is when, `merged_plans_file.py` keeps that, `timeline_text.py` draws it as text. `runtime/turns.py` has
ranks keep to it.
"""
