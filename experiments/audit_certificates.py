"""`tf_privrob.console.audit_certificates` as a binary of a checkout."""

from tf_privrob import console

if __name__ == "__main__":
  console.run("audit_certificates")
