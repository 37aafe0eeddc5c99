// Times the convolution and matrix kernels on the shapes of ResNet-18 and the MLP: GFLOP/s counted by the
// definition.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backend/cpu/gemm.h"
#include "ops/conv/conv_cpu.h"
#include "ops/conv/conv_pool_cpu.h"
#include "timing.h"

namespace {

using namespace hearth;
using namespace hearth::bench;

void bench_conv(const cpu::ConvShape& s, cpu::ConvAlgorithm algorithm, ThreadPool& threads) {
  const cpu::ConvSpec spec{.shape = s, .num_threads = threads.size(), .algorithm = algorithm};
  Buffer<float> x(static_cast<size_t>(s.batch * s.in_h * s.in_w * s.in_c), 1.0F);
  Buffer<float> y(static_cast<size_t>(s.batch * s.out_h() * s.out_w() * s.out_c), 1.0F);
  Buffer<float> w(static_cast<size_t>(s.kernel_h * s.kernel_w * s.group_in() * s.out_c), 1.0F);
  const cpu::ConvForward forward(spec);
  const cpu::ConvBackwardData data(spec);
  const cpu::ConvBackwardWeights weights(spec);
  Buffer<std::byte> space(static_cast<size_t>(
      std::max({forward.workspace_bytes(), data.workspace_bytes(), weights.workspace_bytes()})));
  const double flops =
      2.0 * static_cast<double>(y.size()) * static_cast<double>(s.kernel_h * s.kernel_w * s.group_in());
  const auto name =
      fmt::format("{}->{} {}x{} k{} s{} d{} g{} {}", s.in_c, s.out_c, s.in_h, s.in_w, s.kernel_h, s.stride,
                  s.dilation, s.groups, algorithm == cpu::ConvAlgorithm::winograd ? "winograd" : "direct");
  report(name + " forward", flops, best_seconds(threads.size(), [&] {
           forward.run(x.data(), w.data(), nullptr, nullptr, y.data(), space.data(), threads);
         }));
  report(name + " data", flops, best_seconds(threads.size(), [&] {
           data.run(y.data(), w.data(), x.data(), space.data(), threads);
         }));
  report(name + " weights", flops, best_seconds(threads.size(), [&] {
           weights.run(x.data(), y.data(), w.data(), space.data(), threads);
         }));
}

void bench_gemm(int64_t m, int64_t n, int64_t k, bool ta, bool tb, ThreadPool& threads) {
  const cpu::Gemm gemm(
      {.m = m, .n = n, .k = k, .transpose_a = ta, .transpose_b = tb, .num_threads = threads.size()});
  Buffer<float> a(static_cast<size_t>(m * k), 1.0F);
  Buffer<float> b(static_cast<size_t>(n * k), 1.0F);
  Buffer<float> c(static_cast<size_t>(m * n), 1.0F);
  Buffer<std::byte> space(static_cast<size_t>(gemm.workspace_bytes()));
  report(fmt::format("gemm {}x{}x{} {}{}", m, n, k, ta ? "T" : "N", tb ? "T" : "N"),
         2.0 * static_cast<double>(m * n * k), best_seconds(threads.size(), [&] {
           gemm.run(a.data(), b.data(), nullptr, nullptr, c.data(), space.data(), threads);
         }));
}

void bench_conv_pool(int64_t batch, ThreadPool& threads) {
  const cpu::ConvShape s{.batch = batch, .in_h = 32, .in_w = 32, .in_c = 3, .out_c = 16};
  const cpu::ConvPool conv(s);
  Buffer<float> x(static_cast<size_t>(batch * 32 * 32 * 3));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 1000) / 500.0F - 1.0F;
  Buffer<float> w(27 * 16);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i * 31 % 27) / 13.0F - 1.0F;
  Buffer<float> bias(16), pooled(static_cast<size_t>(batch * 16 * 16 * 16)), dw(w.size()), db(16);
  Buffer<float> dpooled(pooled.size(), 1.0F);
  Buffer<uint8_t> argmax(pooled.size());
  Buffer<std::byte> space(static_cast<size_t>(conv.workspace_bytes()) + 64);
  const double flops = 2.0 * 27 * 16 * 32 * 32 * static_cast<double>(batch);
  report(fmt::format("conv+relu+pool 3->16 b{} forward", batch), flops, best_seconds(threads.size(), [&] {
           conv.forward(x.data(), w.data(), bias.data(), pooled.data(), argmax.data(), space.data(), threads);
         }));
  report(fmt::format("conv+relu+pool 3->16 b{} weights", batch), flops, best_seconds(threads.size(), [&] {
           conv.backward_weights(x.data(), pooled.data(), argmax.data(), dpooled.data(), dw.data(), db.data(),
                                 space.data(), threads);
         }));
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings(argc, argv);
  ThreadPool& threads = settings.threads;
  if (settings.wants("gemm")) {
    bench_gemm(1024, 1024, 1024, false, false, threads);
    for (const auto& [out, in] : {std::pair{512, 784}, {256, 512}, {10, 256}, {10, 4096}}) {
      bench_gemm(64, out, in, false, true, threads);
      bench_gemm(64, in, out, false, false, threads);
      bench_gemm(out, in, 64, true, false, threads);
    }
  }
  if (settings.wants("linear")) {
    for (const auto& [tokens, out, in] : {std::tuple{2048, 288, 288},
                                          {2048, 768, 288},
                                          {2048, 288, 768},
                                          {1024, 768, 768},
                                          {1024, 2048, 768}}) {
      bench_gemm(tokens, out, in, false, true, threads);
      bench_gemm(tokens, in, out, false, false, threads);
      bench_gemm(out, in, tokens, true, false, threads);
    }
  }
  if (settings.wants("pool")) {
    bench_conv_pool(32, threads);
    bench_conv_pool(256, threads);
  }
  if (settings.wants("winograd")) {
    for (const auto& [size, channels] : {std::pair{32, 64}, {16, 128}, {8, 256}, {4, 512}}) {
      bench_conv({.batch = 64, .in_h = size, .in_w = size, .in_c = channels, .out_c = channels},
                 cpu::ConvAlgorithm::winograd, threads);
    }
  }
  if (settings.wants("dilated")) {
    for (const int64_t dilation : {2, 4, 12}) {
      const cpu::ConvShape s{.batch = 2,
                             .in_h = 32,
                             .in_w = 32,
                             .in_c = 512,
                             .out_c = 512,
                             .padding = dilation,
                             .dilation = dilation};
      bench_conv(s, cpu::choose_algorithm(s, true), threads);
    }
  }
  if (settings.wants("depthwise")) {
    for (const auto& [size, channels] : {std::pair{80, 96}, {40, 192}}) {
      for (const int64_t kernel : {3, 5}) {
        for (const int64_t stride : {1, 2}) {
          bench_conv({.batch = 4,
                      .in_h = size,
                      .in_w = size,
                      .in_c = channels,
                      .out_c = channels,
                      .kernel_h = kernel,
                      .kernel_w = kernel,
                      .stride = stride,
                      .padding = kernel / 2,
                      .groups = channels},
                     cpu::ConvAlgorithm::direct, threads);
        }
      }
    }
  }
  if (settings.wants("direct")) {
    bench_conv({.batch = 64, .in_h = 32, .in_w = 32, .in_c = 64, .out_c = 64}, cpu::ConvAlgorithm::direct,
               threads);
    for (const auto& [size, channels] : {std::pair{32, 64}, {16, 128}, {8, 256}}) {
      const cpu::ConvShape strided{
          .batch = 64, .in_h = size, .in_w = size, .in_c = channels, .out_c = 2 * channels, .stride = 2};
      bench_conv(strided, cpu::ConvAlgorithm::direct, threads);
      cpu::ConvShape shortcut = strided;
      shortcut.kernel_h = shortcut.kernel_w = 1;
      shortcut.padding = 0;
      bench_conv(shortcut, cpu::ConvAlgorithm::direct, threads);
    }
    bench_conv({.batch = 64, .in_h = 32, .in_w = 32, .in_c = 3, .out_c = 64}, cpu::ConvAlgorithm::direct,
               threads);
  }
  return 0;
}
