"""`tf_privrob.console.certify` as a binary of a checkout."""

from tf_privrob import console

if __name__ == "__main__":
  console.run("certify")
