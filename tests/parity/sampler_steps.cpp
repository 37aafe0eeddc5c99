// Samplers on a denoiser that can be written down in any language: tanh(x) (0.5 + time / 1000).
// sampler_steps OBJECTIVE SOLVER STEPS SHIFT NUMBER...: what becomes of the numbers.
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "tasks/diffuse/sampler.h"

using namespace hearth;

namespace {

template <typename Enum>
Enum value_of(std::string_view name, std::span<const std::string_view> names) {
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<Enum>(i);
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  constexpr std::array<std::string_view, 3> kSolvers = {"euler", "ddim", "dpm"};
  const tasks::Noising noising(value_of<recipe::Objective>(argv[1], kNames<recipe::Objective>));
  const tasks::SamplerOptions options{.solver = value_of<tasks::Solver>(argv[2], kSolvers),
                                      .steps = std::atoi(argv[3]),
                                      .shift = std::atof(argv[4])};
  std::vector<float> x;
  for (int i = 5; i < argc; ++i) x.push_back(static_cast<float>(std::atof(argv[i])));
  const auto denoise = [](std::span<const float> noisy, double time, std::span<float> prediction) {
    for (size_t i = 0; i < noisy.size(); ++i)
      prediction[i] = static_cast<float>(std::tanh(noisy[i]) * (0.5 + time / 1000));
  };
  tasks::sample(noising, options, denoise, x);
  for (const float value : x) std::printf("%.9g\n", value);
}
