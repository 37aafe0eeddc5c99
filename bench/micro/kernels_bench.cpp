// Times the convolution and matrix kernels on the shapes of ResNet-18 and the MLP: GFLOP/s counted by the
// definition.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <vector>

#include "backend/cpu/conv.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/simd/simd.h"

namespace {

using namespace hearth;

double best_seconds(const std::function<void()>& run) {
  double best = 1e9;
  for (int i = 0; i < 7; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

void report(const std::string& name, double flops, double seconds) {
  fmt::print("{:<44} {:>9.3f} ms {:>8.1f} GFLOP/s\n", name, seconds * 1e3, flops / seconds * 1e-9);
}

void bench_conv(const cpu::ConvShape& s, cpu::ConvAlgorithm algorithm, ThreadPool& threads) {
  const cpu::ConvSpec spec{.shape = s, .num_threads = threads.size(), .algorithm = algorithm};
  std::vector<float> x(static_cast<size_t>(s.batch * s.in_h * s.in_w * s.in_c), 1.0F);
  std::vector<float> y(static_cast<size_t>(s.batch * s.out_h() * s.out_w() * s.out_c), 1.0F);
  std::vector<float> w(static_cast<size_t>(s.kernel_h * s.kernel_w * s.in_c * s.out_c), 1.0F);
  const cpu::ConvForward forward(spec);
  const cpu::ConvBackwardData data(spec);
  const cpu::ConvBackwardWeights weights(spec);
  std::vector<std::byte> space(static_cast<size_t>(
      std::max({forward.workspace_bytes(), data.workspace_bytes(), weights.workspace_bytes()})));
  const double flops =
      2.0 * static_cast<double>(y.size()) * static_cast<double>(s.kernel_h * s.kernel_w * s.in_c);
  const auto name = fmt::format("{}->{} {}x{} k{} s{} {}", s.in_c, s.out_c, s.in_h, s.in_w, s.kernel_h,
                                s.stride, algorithm == cpu::ConvAlgorithm::winograd ? "winograd" : "direct");
  report(name + " forward", flops, best_seconds([&] {
           forward.run(x.data(), w.data(), nullptr, nullptr, y.data(), space.data(), threads);
         }));
  report(name + " data", flops,
         best_seconds([&] { data.run(y.data(), w.data(), x.data(), space.data(), threads); }));
  report(name + " weights", flops,
         best_seconds([&] { weights.run(x.data(), y.data(), w.data(), space.data(), threads); }));
}

void bench_gemm(int64_t m, int64_t n, int64_t k, bool ta, bool tb, ThreadPool& threads) {
  const cpu::Gemm gemm(
      {.m = m, .n = n, .k = k, .transpose_a = ta, .transpose_b = tb, .num_threads = threads.size()});
  std::vector<float> a(static_cast<size_t>(m * k), 1.0F);
  std::vector<float> b(static_cast<size_t>(n * k), 1.0F);
  std::vector<float> c(static_cast<size_t>(m * n), 1.0F);
  std::vector<std::byte> space(static_cast<size_t>(gemm.workspace_bytes()));
  report(fmt::format("gemm {}x{}x{} {}{}", m, n, k, ta ? "T" : "N", tb ? "T" : "N"),
         2.0 * static_cast<double>(m * n * k), best_seconds([&] {
           gemm.run(a.data(), b.data(), nullptr, nullptr, c.data(), space.data(), threads);
         }));
}

}  // namespace

int main(int argc, char** argv) {
  ThreadPool threads(argc > 1 ? std::atoi(argv[1]) : num_available_cpus());
  fmt::print("{} threads, {}\n", threads.size(), cpu::simd().isa);
  bench_gemm(1024, 1024, 1024, false, false, threads);
  bench_gemm(64, 512, 784, false, true, threads);
  bench_gemm(64, 784, 512, false, false, threads);
  bench_gemm(512, 784, 64, true, false, threads);
  bench_gemm(32, 10, 4096, false, true, threads);
  bench_gemm(10, 4096, 32, true, false, threads);
  for (const auto& [size, channels] : {std::pair{32, 64}, {16, 128}, {8, 256}, {4, 512}}) {
    bench_conv({.batch = 64, .in_h = size, .in_w = size, .in_c = channels, .out_c = channels},
               cpu::ConvAlgorithm::winograd, threads);
  }
  bench_conv({.batch = 64, .in_h = 32, .in_w = 32, .in_c = 64, .out_c = 64}, cpu::ConvAlgorithm::direct,
             threads);
  bench_conv({.batch = 64, .in_h = 32, .in_w = 32, .in_c = 64, .out_c = 128, .stride = 2},
             cpu::ConvAlgorithm::direct, threads);
  bench_conv({.batch = 64, .in_h = 32, .in_w = 32, .in_c = 3, .out_c = 64}, cpu::ConvAlgorithm::direct,
             threads);
  return 0;
}
