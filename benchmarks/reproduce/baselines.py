"""Baselines that the five papers compare with, beside ours.

global_adapt  DP-SGD, DPSGD-F (Xu et al. 2021) and DPSGD-Global-Adapt (Esipova et al. 2023)
dp_erm        DP-ERM mitigation (Tran, Dinh and Fioretto 2021)
jagielski     DP-postprocessing and DP-oracle-learner (Jagielski et al. 2019)

python benchmarks/reproduce/baselines.py --small
python benchmarks/reproduce/baselines.py --items global_adapt
"""

from _baselines_of_others import ITEMS
from _results import main

if __name__ == "__main__":
    main(__doc__, ITEMS, runs=3)
