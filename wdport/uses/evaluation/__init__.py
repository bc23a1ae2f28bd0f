"""How good generated series are: scores against real ones, with a floor of real against real next to each."""
