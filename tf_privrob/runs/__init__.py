"""A run as plain functions: train, evaluate, infer, audit.

The binaries in experiments/ call the same functions and write the same files:

    from tf_privrob import data
    from tf_privrob import methods
    from tf_privrob import report
    from tf_privrob.runs import evaluate
    from tf_privrob.runs import infer
    from tf_privrob.runs import train
    from tf_privrob.runs.audit import perform as audit

    settings = methods.DPSGDConfig(dp_epsilon=3.0)
    train.run("dp_sgd", settings, data.load("digits"), "mlp", "runs/first")
    evaluate.run("runs/first", [("pgd", "linf", 0.1)], num_certified=50)
    infer.run("runs/first")
    audit.run("runs/first", "step", runs=1000)
    print(report.write("runs/first").summary)

A method that is trained by its own `fit(..., run_dir="runs/first")` leaves the
same folder, with which the other steps go on.
"""
