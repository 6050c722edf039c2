"""How hard the property tests try: ``HYPOTHESIS_PROFILE=thorough make fast ARGS=--timeout=0`` looks for trouble.

No deadline anywhere: the first example of a kernel also pays for its compilation.  A failing example is printed as a
blob to paste above the test, and its seed can be given again with ``--hypothesis-seed``.
"""

import os

from hypothesis import settings

settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, max_examples=100, derandomize=True)
settings.register_profile("thorough", deadline=None, print_blob=True, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default"))
