"""The command line: commands, demos, and the doctor.

Commands call `penstock.engine`.  An error is one message with the fix, and an exit status of 1 (the run failed) or 2
(the input is wrong).
"""
