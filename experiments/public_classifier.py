"""`tf_privrob.console.public_classifier` as a binary of a checkout."""

from tf_privrob import console

if __name__ == "__main__":
  console.run("public_classifier")
