"""`tf_privrob.console.train` as a binary of a checkout."""

from tf_privrob import console

if __name__ == "__main__":
  console.run("train")
