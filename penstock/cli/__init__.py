"""Where people meet Penstock: the command line, the demo, and the doctor.

Everything here is a thin face over `penstock.engine`; what is wrong is said in one sentence, with the
way out, and an exit status of 1 (the run failed) or 2 (the input is wrong).
"""
