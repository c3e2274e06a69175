"""All data sets that have example tasks."""

from task_builder.data_sets import DataSet
from task_builder.data_sets.swebench import MULTILINGUAL, VERIFIED

DATA_SETS: tuple[DataSet, ...] = (VERIFIED, MULTILINGUAL)
