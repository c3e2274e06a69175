"""All data sets that have example tasks."""

from task_builder.data_sets import DataSet
from task_builder.data_sets.r2e_gym import R2E_GYM
from task_builder.data_sets.scale_swe import SCALE_SWE
from task_builder.data_sets.swe_gym import SWE_GYM
from task_builder.data_sets.swebench import MULTILINGUAL, VERIFIED
from task_builder.data_sets.swebench_pro import SWEBENCH_PRO

DATA_SETS: tuple[DataSet, ...] = (VERIFIED, MULTILINGUAL, SWEBENCH_PRO, SWE_GYM, R2E_GYM, SCALE_SWE)
