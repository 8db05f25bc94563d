"""Work for the jobs in test_studies.py. It is a module of its own so that worker processes import little."""


def count(number, folder, plan):
    """Leaves a trace in the folder."""
    with (folder / "log").open("a") as file:
        file.write(f"{number}\n")
    if (folder / "broken").exists() and number == 3:
        raise ValueError("3 is broken")
    return {"square": number**2}


def total(total, folder, plan):
    return {"total": total, "plan": plan.name}
