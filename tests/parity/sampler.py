"""Samplers against diffusers' schedulers in float64: python tests/parity/sampler.py.

A denoiser that is a formula, tanh(x) (0.5 + time / 1000), goes through each sampler here and there, with several numbers of
steps and shifts. Needs build/cpu/tests/sampler_steps (HEARTH_TESTS=ON HEARTH_TARGETS=more_tests tools/build).
"""

import math
import subprocess
import sys

import numpy as np
import torch
from diffusers import DDIMScheduler, DPMSolverMultistepScheduler, FlowMatchEulerDiscreteScheduler
from parity import ROOT

NOISE = [1.5, -0.25, 0.75, -2.0, 0.01]
TOLERANCE = 1e-5
STEPS = (1, 2, 5, 20)
# Packed tokens of pictures: the shift of FLUX is linear in their number.
TOKENS = {256: 0.5, 1024: 0.63, 4096: 1.15}


def denoised(x, time):
    return torch.tanh(x) * (0.5 + float(time) / 1000)


def through(scheduler, timesteps):
    x = torch.tensor(NOISE, dtype=torch.float64)
    for time in timesteps:
        x = scheduler.step(denoised(x, time), time, x).prev_sample
    return x.double()


def flow(steps, mu):
    scheduler = FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)
    scheduler.set_timesteps(sigmas=np.linspace(1, 1 / steps, steps), mu=mu)
    return through(scheduler, scheduler.timesteps)


def ddpm(kind, objective, steps):
    common = {"beta_schedule": "linear", "beta_start": 1e-4, "beta_end": 0.02, "timestep_spacing": "trailing"}
    prediction = {"epsilon": "epsilon", "v": "v_prediction"}[objective]
    if kind == "ddim":
        scheduler = DDIMScheduler(**common, prediction_type=prediction, clip_sample=False, set_alpha_to_one=True)
    else:
        scheduler = DPMSolverMultistepScheduler(
            **common, prediction_type=prediction, solver_order=2, final_sigmas_type="zero", lower_order_final=True
        )
    scheduler.set_timesteps(steps)
    return through(scheduler, scheduler.timesteps)


def of_hearth(objective, solver, steps, shift):
    command = [ROOT / "build/cpu/tests/sampler_steps", objective, solver, steps, shift, *NOISE]
    out = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout
    return torch.tensor([float(line) for line in out.split()], dtype=torch.float64)


def main():
    worst = 0
    for steps in STEPS:
        cases = {f"flow of {tokens} tokens": (flow(steps, mu), ("flow", "euler", steps, math.exp(mu))) for tokens, mu in TOKENS.items()}
        for kind in ("ddim", "dpm"):
            for objective in ("epsilon", "v"):
                cases[f"{kind} of {objective}"] = (ddpm(kind, objective, steps), (objective, kind, steps, 1))
        for name, (expected, arguments) in cases.items():
            difference = ((of_hearth(*arguments) - expected).abs() / expected.abs().max()).max().item()
            worst = max(worst, difference)
            if difference > TOLERANCE:
                print(f"{name}, {steps} steps: {difference:.2e} from diffusers")
    print(f"samplers: at most {worst:.1e} from diffusers")
    return worst > TOLERANCE


if __name__ == "__main__":
    sys.exit(main())
