// Times attention and the head with its loss on the shapes of small decoders: GFLOP/s counted by the
// definition, for attention over the pairs that a causal mask leaves.
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "ops/lm/attention_cpu.h"
#include "ops/loss/head_cpu.h"
#include "timing.h"

namespace {

using namespace hearth;
using namespace hearth::bench;

/// Small numbers of both signs, stored as the dtype: products of rows must look like logits.
Buffer<std::byte> numbers(DType dtype, int64_t count) {
  Buffer<std::byte> made(static_cast<size_t>(count * dtype_bytes(dtype)));
  for (int64_t i = 0; i < count; ++i)
    store_element(dtype, made.data(), i, static_cast<double>(i * 7919 % 1009) / 2000.0 - 0.25);
  return made;
}

struct Heads {
  int64_t batch, time, heads, kv_heads, size;
};

void bench_attention(const Heads& h, DType dtype, ThreadPool& threads) {
  const cpu::Attention attention({.batch = h.batch,
                                  .time = h.time,
                                  .heads = h.heads,
                                  .kv_heads = h.kv_heads,
                                  .head_size = h.size,
                                  .scale = 1 / std::sqrt(static_cast<float>(h.size)),
                                  .dtype = dtype,
                                  .num_threads = threads.size()});
  const int64_t tokens = h.batch * h.time, queries = tokens * h.heads * h.size,
                keys = tokens * h.kv_heads * h.size;
  auto q = numbers(dtype, queries), out = numbers(dtype, queries), dout = numbers(dtype, queries);
  auto k = numbers(dtype, keys), v = numbers(dtype, keys), dq = q, dk = k, dv = v;
  Buffer<float> lse(static_cast<size_t>(tokens * h.heads));
  Buffer<std::byte> space(
      static_cast<size_t>(std::max(attention.forward_bytes(), attention.backward_bytes())));
  const double pairs =
      static_cast<double>(h.batch * h.heads) * static_cast<double>(h.time * (h.time + 1) / 2);
  const double matmul = 2 * pairs * static_cast<double>(h.size);
  const auto name = fmt::format("attention b{} t{} {}/{} heads of {} {}", h.batch, h.time, h.heads,
                                h.kv_heads, h.size, dtype_name(dtype));
  report(name + " fwd", 2 * matmul, best_seconds(threads.size(), [&] {
           attention.forward(
               {.q = q.data(), .k = k.data(), .v = v.data(), .out = out.data(), .lse = lse.data()},
               space.data(), threads);
         }));
  report(name + " bwd", 5 * matmul, best_seconds(threads.size(), [&] {
           attention.backward({.q = q.data(),
                               .k = k.data(),
                               .v = v.data(),
                               .out = out.data(),
                               .lse = lse.data(),
                               .dout = dout.data(),
                               .dq = dq.data(),
                               .dk = dk.data(),
                               .dv = dv.data()},
                              space.data(), threads);
         }));
}

void bench_head(int64_t tokens, int64_t width, int64_t vocab, int64_t chunk, DType dtype,
                ThreadPool& threads) {
  auto x = numbers(dtype, tokens * width), weight = numbers(dtype, vocab * width), dx = x;
  Buffer<float> losses(static_cast<size_t>(tokens)), lse(losses.size()), dlosses(losses.size(), 1.0F);
  Buffer<float> dweight(static_cast<size_t>(vocab * width));
  Buffer<int32_t> labels(losses.size());
  for (size_t i = 0; i < labels.size(); ++i)
    labels[i] = static_cast<int32_t>(i * 7919 % static_cast<size_t>(vocab));
  const double matmul = 2 * static_cast<double>(tokens * width) * static_cast<double>(vocab);
  using Task = cpu::HeadSpec::Task;
  for (const auto& [task, matmuls, label] :
       {std::tuple{Task::losses, 1, "losses"}, {Task::gradients, 3, "gradients"}, {Task::both, 3, "both"}}) {
    const cpu::Head head({.task = task,
                          .tokens = tokens,
                          .width = width,
                          .vocab = vocab,
                          .chunk = chunk,
                          .x = dtype,
                          .weight = dtype,
                          .num_threads = threads.size()});
    Buffer<std::byte> space(static_cast<size_t>(head.workspace_bytes()));
    const cpu::Head::Arrays arrays{.x = x.data(),
                                   .weight = weight.data(),
                                   .labels = labels.data(),
                                   .losses = losses.data(),
                                   .lse = lse.data(),
                                   .dlosses = dlosses.data(),
                                   .dloss = 1,
                                   .dx = dx.data(),
                                   .dweight = dweight.data()};
    report(fmt::format("head {}x{}->{} by {} {} {}", tokens, width, vocab, chunk, dtype_name(dtype), label),
           matmuls * matmul, best_seconds(threads.size(), [&] { head.run(arrays, space.data(), threads); }));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings(argc, argv);
  ThreadPool& threads = settings.threads;
  if (settings.wants("attention")) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      bench_attention({8, 256, 6, 6, 48}, dtype, threads);
      bench_attention({2, 512, 12, 12, 64}, dtype, threads);
    }
    bench_attention({1, 2048, 8, 2, 64}, DType::f32, threads);
    bench_attention({1, 1024, 8, 2, 128}, DType::f32, threads);
  }
  if (settings.wants("head")) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      bench_head(2048, 288, 32000, 256, dtype, threads);
      bench_head(1024, 768, 32000, 256, dtype, threads);
    }
    bench_head(2048, 288, 32000, 128, DType::f32, threads);
  }
  return 0;
}
