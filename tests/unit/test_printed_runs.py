"""What is read from a few lines of one program after another: its steps, its evaluations, and its settings."""

import pytest

from trainmaster.agent.metrics.parse import Parser

BAR = "#####     "
ALLENNLP = "2026-11-27 10:00:00,123 - INFO - allennlp.training.gradient_descent_trainer - "

RUNS: dict[str, list[tuple[str, object]]] = {
    "kohya: the time step of a diffusion is no step of the training": [
        ("steps:   2%|2         | 50/2000 [00:10<06:40,  4.88it/s, avr_loss=0.12]", (50, {"avr_loss": 0.12})),
        (
            "validation steps:  25%|##        | 2/8 [00:01<00:03,  2.00it/s, val_avg_loss=0.19, timestep=500]",
            (None, {"val_avg_loss": 0.19}),
        ),
        (
            "epoch validation steps:  25%|##   | 2/8 [00:01<00:03,  2.00it/s, val_epoch_avg_loss=0.19, timestep=350]",
            (None, {"val_epoch_avg_loss": 0.19}),
        ),
    ],
    "MaxText: the steps of an evaluation are none of the training": [
        ("completed step: 40, seconds: 0.5, loss: 3.250", (40, {"seconds": 0.5, "loss": 3.25})),
        ("Completed eval step 0", None),
        ("Completed eval step 1", None),
    ],
    "ESPnet: batches, and the parts of an epoch's results": [
        ("1epoch:train:1-100batch: iter_time=0.001, loss=2.5", (100, {"iter_time": 0.001, "loss": 2.5})),
        ("1epoch:train:101-200batch: iter_time=0.001, loss=2.25", (200, {"iter_time": 0.001, "loss": 2.25})),
        (
            "1epoch results: [train] loss=2.5, acc=0.591, train_time=0.982, [valid] loss=23.2, acc=0.541",
            (None, {"train_loss": 2.5, "train_acc": 0.591, "train_time": 0.982, "valid_loss": 23.2, "valid_acc": 0.541}),
        ),
    ],
    "CLU: a line's values are of its collection": [
        ("[1001000] collection=train accuracy=0.5, loss=4.5", (1001000, {"accuracy": 0.5, "loss": 4.5})),
        (
            "[1001000] collection=training_eval/wmt accuracy=0.25, loss=5.5",
            (1001000, {"training_eval/wmt/accuracy": 0.25, "training_eval/wmt/loss": 5.5}),
        ),
    ],
    "Optuna: a trial's value, and none of its parameters": [
        (
            "[I 2026-08-20 19:25:09,783] Trial 1 finished with value: 195.5 and parameters: "
            "{'lr': 0.0003, 'entropy_coeff': 0.012, 'vf_loss_coeff': 0.5}. Best is trial 0 with value: 200.5.",
            (1, {"value": 195.5}),
        ),
    ],
    "NeMo's bar without a rate": [
        ("Epoch 0: :  10%|#         | 101/1000 [00:21<35:11, v_num=0, reduced_train_loss=9.830, global_step=100.0]",
         (100, {"reduced_train_loss": 9.83})),
    ],
    "Lightning pads a float to five characters": [
        ("Epoch 0:  10%|#  | 400/4000 [00:01<00:10, 300.00it/s, v_num=0, train_loss=0.5, global_step=99.00]", (99, {"train_loss": 0.5})),
        ("Epoch 0:  10%|#  | 404/4000 [00:01<00:10, 300.00it/s, v_num=0, train_loss=0.5, global_step=100.0]", (100, {"train_loss": 0.5})),
    ],
    "DETR: the averages of an evaluation": [
        ("Epoch: [0]  [ 10/313]  eta: 0:01:02  lr: 0.0001  loss: 24.5000 (26.5000)", (10, {"lr": 0.0001, "loss": 24.5})),
        ("Test: Total time: 0:00:05 (0.5 s / it)", None),
        ("Averaged stats: class_error: 71.00  loss: 20.0000 (21.0000)", (None, {"test_class_error": 71.0, "test_loss": 21.0})),
    ],
    "pymoo: a table of measured values under any names": [
        ("n_gen  |  n_eval  | n_nds  |     cv_min    |      eps      |   indicator", None),
        ("==========================================================================", None),
        ("     1 |      100 |      3 |  5.000000E-01 |             - |             -", (1, {"n_eval": 100, "n_nds": 3, "cv_min": 0.5})),
        (
            "     2 |      200 |      5 |  2.500000E-01 |  0.1250000000 |         ideal",
            (2, {"n_eval": 200, "n_nds": 5, "cv_min": 0.25, "eps": 0.125}),
        ),
    ],
    "DEAP's logbook": [
        ("gen\tnevals\tavg    \tstd    \tmin\tmax", None),
        ("0  \t300   \t50.9   \t4.97   \t37 \t65 ", (0, {"nevals": 300, "avg": 50.9, "std": 4.97, "min": 37, "max": 65})),
    ],
    "Flower: a heading names the round": [
        ("INFO :      [ROUND 1]", (1, {})),
        ("INFO :      fit progress: (1, 1.8, {'accuracy': 0.41}, 5.1)", (None, {"accuracy": 0.41})),
        ("=== Round 2 of 3 ===", (2, {})),
        ("Starting round 3 with 4 clients", None),
        ("Round 3: done", None),
    ],
    "COCO's summary": [
        (" Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.410", (None, {"AP": 0.41})),
        (" Average Precision  (AP) @[ IoU=0.50      | area=   all | maxDets=100 ] = 0.610", (None, {"AP50": 0.61})),
        (" Average Precision  (AP) @[ IoU=0.50:0.95 | area= small | maxDets=100 ] = -1.000", None),
        (" Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets= 10 ] = 0.525", (None, {"AR10": 0.525})),
        (" Average Recall     (AR) @[ IoU=0.50:0.95 | area= large | maxDets=100 ] = 0.725", (None, {"ARl": 0.725})),
    ],
    "DCGAN: the batch of an epoch": [
        ("[0/2][5/782]\tLoss_D: 0.5\tLoss_G: 4.5", (5, {"Loss_D": 0.5, "Loss_G": 4.5})),
        ("[1/2][5/782]\tLoss_D: 0.5\tLoss_G: 4.5", (787, {"Loss_D": 0.5, "Loss_G": 4.5})),
    ],
    "Flux": [
        ("[ Info: [2]: Test accuracy: 0.9700", (2, {"Test_accuracy": 0.97})),
    ],
    "Flux, without the macro": [
        ("Epoch 1/5, batch 10/50: loss = 0.52f0", (10, {"loss": 0.52})),
        (
            "Epoch: 2   Train: (loss = 0.5000f0, acc = 91.6)   Test: (loss = 0.45f0, acc = 91.8)",
            (None, {"train_loss": 0.5, "train_acc": 91.6, "test_loss": 0.45, "test_acc": 91.8}),
        ),
    ],
    "CleanRL: the episodes of an evaluation": [
        ("global_step=5000, episodic_return=[120.5]", (5000, {"episodic_return": 120.5})),
        ("eval_episode=3, episodic_return=[497.5]", (None, {"eval_episodic_return": 497.5})),
    ],
    "AutoGluon, Surprise, caret: numbers of a row belong to columns": [
        ("0   CatBoost   0.842461   0.86   accuracy   0.008018   0.004153   1.25", None),
        ("RMSE (testset)    0.9311  0.9370  0.9320  0.9342  0.0031", None),
        ("Balanced Accuracy   1.0000   0.9500   0.9450", None),
    ],
    "torchvision: the model and its average": [
        ("Test:  Acc@1 15.500 Acc@5 40.250", (None, {"test_Acc@1": 15.5, "test_Acc@5": 40.25})),
        ("Test: EMA Acc@1 15.750 Acc@5 41.250", (None, {"test_EMA_Acc@1": 15.75, "test_Acc@5": 41.25})),
    ],
    "fairseq's JSON: the step of a validation": [
        ('{"epoch": 1, "valid_loss": "8.769", "valid_num_updates": "1100"}', (1100, {"valid_loss": 8.769, "epoch": 1.0})),
    ],
    "Ignite: the parts of an evaluation, and a bar that has not moved": [
        ("ITERATION - loss: 0.0000 - lr: 0.0100:   0%|          | 0/188 [00:00<?, ?it/s]", None),
        ("2026-11-26 11:49:04,212 CIFAR10-Training INFO: Epoch[1] - Evaluation time (seconds): 0.206", (1, {"Evaluation_time": 0.206})),
        (" - Train metrics:", None),
        (" \tAccuracy: 0.91", (None, {"train_Accuracy": 0.91})),
        ("\tLoss: 0.21", (None, {"train_Loss": 0.21})),
        ("2026-11-26 11:49:04,255 CIFAR10-Training INFO: Epoch[1] - Evaluation time (seconds): 0.042", (1, {"Evaluation_time": 0.042})),
        (" - Test metrics:", None),
        (" \tAccuracy: 0.81", (None, {"test_Accuracy": 0.81})),
        ("\tLoss: 0.51", (None, {"test_Loss": 0.51})),
    ],
    "river: a count with thousands' commas": [
        ("[900] Accuracy: 87.67%", (900, {"Accuracy": 87.67})),
        ("[1,250] Accuracy: 88.96%", (1250, {"Accuracy": 88.96})),
        ("[1,000,000] Accuracy: 89.50%", (1_000_000, {"Accuracy": 89.5})),
    ],
    "PyTorch's CIFAR10 tutorial: epoch and batch": [("[1,  2000] loss: 2.163", (1, {"loss": 2.163}))],
    "ImageNet of old": [
        ("Test: [48/48]  Loss 1.5 (1.75)  Prec@1 28.125 ( 31.250)", (None, {"test_Loss": 1.75, "test_Prec@1": 31.25})),
        (" * Prec@1 17.236 Prec@5 37.880", (None, {"test_Prec@1": 17.236, "test_Prec@5": 37.88})),
    ],
    "KataGo: the validation after an epoch": [
        ("BEGINNING NEXT EPOCH 1", (1, {})),
        ("Global step: 102400 samples", (102400, {})),
        ("p0loss = 2.5, vloss = 0.75, loss = 4.25, time_since_last_print = 0.5", (None, {"p0loss": 2.5, "vloss": 0.75, "loss": 4.25, "time_since_last_print": 0.5})),
        ("Beginning validation after epoch!", None),
        ("p0loss = 2.25, vloss = 0.5, loss = 4.125", (None, {"val_p0loss": 2.25, "val_vloss": 0.5, "val_loss": 4.125})),
        ("Validation took 0.2 seconds", None),
        ("BEGINNING NEXT EPOCH 2", None),
        ("p0loss = 2.0, vloss = 0.25, loss = 4.0", (None, {"p0loss": 2.0, "vloss": 0.25, "loss": 4.0})),
        ("Validating...", None),
        ("loss = 3.5", (None, {"val_loss": 3.5})),
        ("Train loss: 0.5 | Val loss: 0.25", (None, {"Train_loss": 0.5, "Val_loss": 0.25})),
        ("[5] train-loss:0.5", (5, {"train-loss": 0.5})),
        ("loss = 3.25", (None, {"loss": 3.25})),
    ],
    "AllenNLP: bars of a training and of its validation": [
        (f"{ALLENNLP}Epoch 0/7", (0, {})),
        (f"{ALLENNLP}Training", None),
        (f"accuracy: 0.5, loss: 2.5 ||:  50%|{BAR}| 10/20 [00:01<00:01,  9.9it/s]", (None, {"accuracy": 0.5, "loss": 2.5})),
        (f"{ALLENNLP}Validating", None),
        (f"accuracy: 0.5, loss: 2.5 ||: 100%|{BAR}| 20/20 [00:01<00:01,  9.9it/s]", (None, {"accuracy": 0.5, "loss": 2.5})),
        (f"  0%|{BAR}| 0/5 [00:00<?, ?it/s]", None),
        (f"accuracy: 0.5, loss: 3.5 ||:  40%|{BAR}| 2/5 [00:01<00:01,  9.9it/s]", (None, {"val_accuracy": 0.5, "val_loss": 3.5})),
        (f"accuracy: 0.5, loss: 4.5 ||: 100%|{BAR}| 5/5 [00:01<00:01,  9.9it/s]", (None, {"val_accuracy": 0.5, "val_loss": 4.5})),
        (f"{ALLENNLP}Epoch duration: 0:00:03.123", None),
        (f"accuracy: 0.5, loss: 2.5 ||:  50%|{BAR}| 10/20 [00:01<00:01,  9.9it/s]", (None, {"accuracy": 0.5, "loss": 2.5})),
        (f"{ALLENNLP}Validating", None),
        (f"accuracy: 0.5, loss: 3.5 ||:  40%|{BAR}| 2/5 [00:01<00:01,  9.9it/s]", (None, {"val_accuracy": 0.5, "val_loss": 3.5})),
        (f"{ALLENNLP}Training", None),
        (f"accuracy: 0.5, loss: 2.5 ||:  40%|{BAR}| 2/5 [00:01<00:01,  9.9it/s]", (None, {"accuracy": 0.5, "loss": 2.5})),
        ("loss = 3.25", (None, {"loss": 3.25})),
        (f"{ALLENNLP}Validating", None),
        (f"Epoch 1: 100%|{BAR}| 5/5 [00:01<00:01,  9.9it/s, loss=2.5]", (5, {"loss": 2.5})),
        (f" 50%|{BAR}| 10/20 [00:01<00:01,  9.9it/s, loss=2.5]", (None, {"loss": 2.5})),
        (f"{ALLENNLP}Validating", None),
        (f"100%|{BAR}| 20/20 [00:01<00:01,  9.9it/s, loss=2.5]", (None, {"loss": 2.5})),
    ],
    "Before a training, what is validated is no model": [
        ("Validating the configuration", None),
        ("Validating", None),
        ("Starting validation of 3 files", None),
        ("loss = 3.5", (None, {"loss": 3.5})),
    ],
    "OLMo: evaluations below a name": [
        ("INFO  Settings", None),
        ("    model/d_model=1.5", None),
        ("2026-11-27 11:35:00.735\tvm:0\tolmo.train:967\tINFO\t[step=40/739328,epoch=0]", (40, {})),
        ("    optim/total_grad_norm=3.235", (None, {"optim/total_grad_norm": 3.235})),
        ("    train/Perplexity=249,403", (None, {"train/Perplexity": 249403.0})),
        ("2026-11-27 11:35:00.735\tvm:0\tolmo.train:967\tINFO\tCheckpoint saved to out/step40-unsharded", None),
        ("2026-11-27 11:35:05.483\tvm:0\tolmo.train:967\tINFO\tall-small-ppl-validation", None),
        ("    eval/c4_en-validation/CrossEntropyLoss=7.300", (None, {"eval/c4_en-validation/CrossEntropyLoss": 7.3})),
        ("    eval/c4_en-validation/Perplexity=1,480", (None, {"eval/c4_en-validation/Perplexity": 1480.0})),
        ("2026-11-27 11:35:05.483\tvm:0\tolmo.train:967\tINFO\tRunning evaluation for 'piqa'...", None),
        ("2026-11-27 11:35:05.483\tvm:0\tolmo.train:967\tINFO\t[eval_step=1/1]", None),
        ("2026-11-27 11:35:05.483\tvm:0\tolmo.train:967\tINFO\tpiqa", None),
        ("    eval/downstream/piqa_len_norm=0.5200", (None, {"eval/downstream/piqa_len_norm": 0.52})),
        ("    note: 0.5", None),
        ("Saving is done", None),
        ("    keep_last=3.5", None),
    ],
    "A count with a comma is written as a measured one is": [
        ("Perplexity: 1,480", (None, {"Perplexity": 1480.0})),
    ],
    "big_vision: a value a line": [
        ("I1127 11:35:00.443163 140116574091264 utils.py:1046] \x1b[35m[0]\x1b[0m num_params = 22050664.0", None),
        ("I1127 11:35:00.644108 140116574091264 utils.py:1046] \x1b[35m[0]\x1b[0m val/prec@1 = 0.1", (0, {"val/prec@1": 0.1})),
        ("[10] global_schedule = 0.000925", (10, {"global_schedule": 0.000925})),
        ("[10] training_loss = 5.125", (10, {"training_loss": 5.125})),
        ("I1127 11:35:01.964212 140116574091264 utils.py:1046] \x1b[35m[10]\x1b[0m l2_params = 121.5", (10, {"l2_params": 121.5})),
        ("[10] img/sec/core = 7592.6", (10, {"img/sec/core": 7592.6})),
        ("[10] epoch = 0.25", None),
    ],
    "The number of a process, whose settings are none": [
        ("[0] hidden_size = 768.0", None),
        ("step 5: loss 0.5", (5, {"loss": 0.5})),
        ("[1] dropout = 0.1", None),
    ],
    "llama2.c: the number before the first cell is the step": [
        ("step 0: train loss 3.8995, val loss 3.8827", (0, {"train_loss": 3.8995, "val_loss": 3.8827})),
        ("0 | loss 3.8857 | lr 0.000000e+00 | 85.38ms | mfu -100.00%", (0, {"loss": 3.8857, "lr": 0.0, "mfu": -100.0})),
        ("10 | loss 3.7872 | lr 5.000000e-04 | 31.62ms | mfu 0.01%", (10, {"loss": 3.7872, "lr": 0.0005, "mfu": 0.01})),
        ("step 50: train loss 3.0459, val loss 3.0426", (50, {"train_loss": 3.0459, "val_loss": 3.0426})),
    ],
    "A number before cells that is no step": [
        ("0 | model | CrossEntropyLoss | 1.2 K  | train", None),
        ("3 | loss  | CrossEntropyLoss | 0      | train", None),
        ("1 | node | loss 0.5", (None, {"loss": 0.5})),
        ("1 | step 20 | loss 0.5", (20, {"loss": 0.5})),
    ],
    "A number before cells, of a program that counts only epochs, is one of batches": [
        ("Epoch 3: val loss 0.5", (3, {"val_loss": 0.5})),
        ("0 | loss 0.25 | acc 0.5", (None, {"loss": 0.25, "acc": 0.5})),
    ],
    "A number before cells that is below a named step is one of a class": [
        ("step 100: val loss 0.5", (100, {"val_loss": 0.5})),
        ("0 | precision 0.25 | recall 0.5", (None, {"precision": 0.25, "recall": 0.5})),
        ("1 | precision 0.5 | recall 0.5", (None, {"precision": 0.5, "recall": 0.5})),
        ("101 | loss 0.5", (101, {"loss": 0.5})),
    ],
    "Only numbers before cells, and a second training": [
        ("0 | loss 0.5", (0, {"loss": 0.5})),
        ("10 | loss 0.25", (10, {"loss": 0.25})),
        ("0 | loss 0.5", (0, {"loss": 0.5})),
    ],
    "Lightning: the table of a test, as rich draws it": [
        ("Epoch 19/19 ━━━━━━━━━━━━━ 16/16 0:00:00 • 0:00:00 24.52it/s v_num: 0.000", (320, {})),
        ("┏━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━┓", None),
        ("┃      Test metric       ┃     DataLoader 0     ┃", None),
        ("┡━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━┩", None),
        ("│ test0_epoch/weighted   │  0.0383246366553620  │", None),
        ("│ test0_epoch/forces_mae │ 0.060483188329123416 │", None),
        ("│         epoch          │         3.0          │", None),
        (
            "└────────────────────────┴──────────────────────┘",
            (None, {"test0_epoch/weighted": 0.038324636655362, "test0_epoch/forces_mae": 0.060483188329123416}),
        ),
        ("Testing ━━━━━━━━━━━━━━━━━━ 1/1 0:00:00 • 0:00:00 ", None),
    ],
    "NequIP before 0.7: a header behind a label, and labelled rows": [
        ("validation", None),
        ("# Epoch batch         loss       loss_f        f_mae", None),
        ("      0     1         2.35         1.96        0.978", None),
        ("  Initialization     #    Epoch      wal       LR       loss_f         loss        f_mae", None),
        (
            "! Initial Validation          0    9.036     0.01        0.961         1.25        0.875",
            (0, {"val_wal": 9.036, "val_LR": 0.01, "val_loss_f": 0.961, "val_loss": 1.25, "val_f_mae": 0.875}),
        ),
        ("Wall time: 9.036", None),
        ("training", None),
        ("# Epoch batch         loss       loss_f        f_mae", None),
        ("      1     1         2.35         1.96        0.978", None),
        ("  Train      #    Epoch      wal       LR       loss_f         loss        f_mae", None),
        (
            "! Train               1   12.064     0.01        0.886         1.12        0.825",
            (1, {"wal": 12.064, "LR": 0.01, "loss_f": 0.886, "loss": 1.12, "f_mae": 0.825}),
        ),
        (
            "! Validation          1   12.064     0.01        0.781         1.02        0.725",
            (1, {"val_wal": 12.064, "val_LR": 0.01, "val_loss_f": 0.781, "val_loss": 1.02, "val_f_mae": 0.725}),
        ),
        ("! Best model        1    1.020", None),
    ],
    "Lightning: the table of a test without rich": [
        ("step 5: loss 0.5", (5, {"loss": 0.5})),
        ("─────────────────────────────────────────────────────────", None),
        ("             Test metric               DataLoader 0", None),
        ("─────────────────────────────────────────────────────────", None),
        ("    test0_epoch/weighted_sum        0.05308858136292408", (None, {"test0_epoch/weighted_sum": 0.05308858136292408})),
        ("      test0_epoch/forces_mae        0.08607348067157243", (None, {"test0_epoch/forces_mae": 0.08607348067157243})),
        ("test0_epoch/energy_maxabserr        0.007899033643827741", (None, {"test0_epoch/energy_maxabserr": 0.007899033643827741})),
        ("              epoch                         3.0", None),
        ("─────────────────────────────────────────────────────────", None),
        ("  weight_decay        0.05", None),
        ("Testing is done", None),
        ("    learning_rest        0.05308858136292408", None),
    ],
    "A table of settings, as rich draws it": [
        ("step 5: loss 0.5", (5, {"loss": 0.5})),
        ("┏━━━━━━━━━━━━━━━┳━━━━━━━┓", None),
        ("┃ Setting       ┃ Value ┃", None),
        ("┡━━━━━━━━━━━━━━━╇━━━━━━━┩", None),
        ("│ learning_rate │ 0.001 │", None),
        ("│ loss_weight   │ 0.5   │", None),
        ("└───────────────┴───────┘", None),
    ],
    "RLlib: coefficients are settings": [("entropy_coeff 0.5", None), ("step 5: vf_loss_coeff=0.5", (5, {"vf_loss_coeff": 0.5}))],
    "Caffe: a step of the learning rate beside the iteration": [
        ("I1127 10:00:47.3 13512 solver.cpp:239] Iteration 0 (0 iter/s, 0.5s/100 iters), loss = 2.5", (0, {"loss": 2.5})),
        ("I1127 10:00:48.3 13512 solver.cpp:239] Iteration 100 (12.5 iter/s, 8s/100 iters), loss = 1.25", (100, {"loss": 1.25})),
        ("I1127 10:00:48.4 13512 sgd_solver.cpp:46] MultiStep Status: Iteration 110, step = 1", (110, {})),
        ("I1127 10:00:49.3 13512 solver.cpp:239] Iteration 200 (12.5 iter/s, 8s/100 iters), loss = 0.75", (200, {"loss": 0.75})),
        ("I1127 10:00:49.3 13512 sgd_solver.cpp:112] Iteration 200, lr = 0.001", (200, {"lr": 0.001})),
    ],
    "Chainer: settings in comments, and a table": [
        ("GPU: -1", None),
        ("# unit: 1000", None),
        ("# Minibatch-size: 100", None),
        ("# epoch: 20", None),
        ("epoch       main/loss   validation/main/loss  elapsed_time", None),
        ("\x1b[J1           0.75        0.5                   0.917887", (1, {"main/loss": 0.75, "validation/main/loss": 0.5, "elapsed_time": 0.917887})),
    ],
    "An epoch below comments": [
        ("# loss: l1", None),
        ("Epoch: 1", (1, {})),
        ("# resumed", None),
        ("# epoch: 2", (2, {})),
        ("# epoch: 3 loss: 0.5", (3, {"loss": 0.5})),
    ],
    "PaddleOCR: an evaluation has the names of the training": [
        ("[2026/11/27 15:30:10] ppocr INFO: epoch: [3/8], global_step: 50, lr: 0.0005, acc: 0.75, loss: 1.5", (50, {"lr": 0.0005, "acc": 0.75, "loss": 1.5})),
        ("[2026/11/27 15:30:10] ppocr INFO: cur metric, acc: 0.25, norm_edit_dis: 0.5, fps: 12.5", (None, {"eval_acc": 0.25, "eval_norm_edit_dis": 0.5, "eval_fps": 12.5})),
        ("[2026/11/27 15:30:10] ppocr INFO: best metric, acc: 0.5, norm_edit_dis: 0.75, fps: 12.5, best_epoch: 2", None),
    ],
    "RWKV: from one epoch to another": [
        ("# Epoch = 6 to 15 (will continue afterwards), save every 1 epoch", None),
        ("Epoch 6 to begin, loss: 0.5", (6, {"loss": 0.5})),
    ],
    "Lightning: a bar that begins again shows the values of the epoch before": [
        (f"Epoch 0:   0%|{BAR}| 0/4 [00:00<?, ?it/s]", None),
        (f"Epoch 0:  75%|{BAR}| 3/4 [00:04<00:01, 9.9it/s, loss=2.5, lr=0.5]", (3, {"loss": 2.5, "lr": 0.5})),
        (f"Epoch 0: 100%|{BAR}| 4/4 [00:05<00:00, 9.9it/s, loss=1.5, lr=0.0]", (4, {"loss": 1.5, "lr": 0.0})),
        (f"Epoch 0:   0%|{BAR}| 0/4 [00:00<?, ?it/s, loss=1.5, lr=0.0]", None),
        (f"Epoch 1:   0%|{BAR}| 0/4 [00:00<?, ?it/s, loss=1.5, lr=0.0]", None),
        (f"Epoch 1:  25%|{BAR}| 1/4 [00:00<00:01, 9.9it/s, loss=1.25, lr=0.0]", (5, {"loss": 1.25, "lr": 0.0})),
        (f"Epoch 2:   0%|{BAR}| 0/4 [00:00<?, ?it/s, loss=1.125]", (8, {"loss": 1.125})),
    ],
    "Sockeye: an epoch and all batches so far, in letters": [
        ("[INFO:sockeye.training] E=0 B=50\tu/sec=27.75\tppl=54.5", (50, {"u/sec": 27.75, "ppl": 54.5})),
        ("[INFO:sockeye.training] Checkpoint [1]\tUpdates=60 Epoch=0 Samples=1328", (60, {"Samples": 1328.0})),
        ("[INFO:sockeye.training] Checkpoint [1]\tTrain-ppl=49.25", (None, {"Train-ppl": 49.25})),
        ("[INFO:sockeye.training] E=0 B=100\tu/sec=22.5\tppl=21.75", (100, {"u/sec": 22.5, "ppl": 21.75})),
        ("[INFO:sockeye.training] E=1 B=150\tu/sec=22.5\tppl=20.75", (150, {"u/sec": 22.5, "ppl": 20.75})),
    ],
    "neat-python: each generation has a heading": [
        (" ****** Running generation 0 ****** ", (0, {})),
        ("Population's average fitness: 2.25 stdev: 0.375", (None, {"Population_average_fitness": 2.25, "stdev": 0.375})),
        ("Average adjusted fitness: 0.5", (None, {"Average_adjusted_fitness": 0.5})),
        ("Mean genetic distance 1.465, standard deviation 0.423", None),
        ("   ID   age  size   fitness   adj fit  stag", None),
        ("     1    0   400      2.999    0.583     0", None),
        ("Generation time: 0.088 sec", None),
        (" ****** Running generation 1 ****** ", (1, {})),
        ("Key: 39636", None),
        ("Fitness: 3.875", (None, {"Fitness": 3.875})),
    ],
    "DeepXDE: the losses of the best model stand below its step": [
        ("Epoch 3000: train loss improved from 4.04e-04 to 1.34e-05, saving model to model/model-3000.pt ...", (3000, {})),
        ("Epoch 10000: train loss improved from 4.04e-04 to 1.34e-05, saving model to model/model-10000.pt ...", (10000, {})),
        ("Best model at step 3000:", None),
        ("  train loss: 1.03e-05", None),
        ("  test loss: 2.37e-05", None),
        ("  test metric: [3.31e-04]", None),
        ("Test loss: 0.5", (None, {"Test_loss": 0.5})),
    ],
}


@pytest.mark.parametrize("name", RUNS)
def test_the_lines_of_a_run(name: str) -> None:
    parser = Parser()
    for line, read in RUNS[name]:
        assert parser.parse(line.encode()) == read, line
