"""`python -m tf_privrob`: the console command without an installation."""

from __future__ import annotations

from tf_privrob import console

if __name__ == "__main__":
  console.main()
