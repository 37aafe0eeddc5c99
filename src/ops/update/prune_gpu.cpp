#include "base/pruning.h"
#include "ops/many_tensors.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// The radix selection reads kBits of a key per pass over the scores.
constexpr int kBits = 4;
constexpr int kDigits = 1 << kBits;
/// Number of scores per thread block.
constexpr int kRun = 16384;

/// State of a selection: the digits that are known, and the rank among the keys with these digits. A negative
/// rank ends the selection: all elements are pruned.
struct Selection {
  uint64_t prefix;
  int64_t rank;
};
struct Scores {
  const float* values;
  int64_t first;  ///< index of the first element among all scores
};

__global__ void __launch_bounds__(rt::kWarp) begin(const float* sparsity, int64_t total, Selection* state) {
  if (threadIdx.x != 0) return;
  const int64_t pruned = num_pruned(static_cast<double>(*sparsity), total);
  *state = pruned == total ? Selection{kMaxKey, -1} : Selection{0, pruned};
}

/// Computes counts[block][digit]: how many keys of the block's scores have the known digits and this digit
/// next. Counts are exact in f32.
__global__ void __launch_bounds__(kBlockThreads)
    count_digits(ManyTensors<Scores> all, const Selection* state, float* counts, int shift, bool by_value) {
  const BlockRun run = run_of_block(all);
  const Scores scores = all.tensors[run.tensor];
  const uint64_t prefix = state->prefix;
  float found[kDigits] = {};
  for (int64_t i = run.begin + threadIdx.x; i < run.end; i += kBlockThreads) {
    const uint64_t key = prune_key(scores.values[i], by_value, static_cast<uint32_t>(scores.first + i));
    const int digit =
        has_prefix(key, prefix, shift + kBits) ? static_cast<int>(key >> shift & (kDigits - 1)) : -1;
    RT_UNROLL
    for (int d = 0; d < kDigits; ++d) found[d] += digit == d ? 1.0F : 0.0F;
  }
  RT_UNROLL
  for (int d = 0; d < kDigits; ++d) {
    const float sum = rt::reduce_block(found[d], rt::Add(), 0.0F);
    if (threadIdx.x == 0) counts[static_cast<int64_t>(blockIdx.x) * kDigits + d] = sum;
  }
}

/// Sums the counts of all blocks and adds the next digit to the state. One block: thread (part, digit) sums
/// every 16th block.
__global__ void __launch_bounds__(kBlockThreads)
    choose_digit(const float* counts, int64_t num_blocks, Selection* state, int shift) {
  RT_SHARED(sums, int64_t[kBlockThreads]);
  const int digit = static_cast<int>(threadIdx.x) % kDigits, part = static_cast<int>(threadIdx.x) / kDigits;
  int64_t sum = 0;
  for (int64_t block = part; block < num_blocks; block += kBlockThreads / kDigits)
    sum += static_cast<int64_t>(counts[block * kDigits + digit]);
  sums[threadIdx.x] = sum;
  rt::sync_block();
  if (threadIdx.x != 0 || state->rank < 0) return;
  int64_t rank = state->rank;
  for (int d = 0; d < kDigits; ++d) {
    int64_t count = 0;
    for (int p = 0; p < kBlockThreads / kDigits; ++p) count += sums[p * kDigits + d];
    if (rank < count) {
      *state = {state->prefix | static_cast<uint64_t>(d) << shift, rank};
      return;
    }
    rank -= count;
  }
}

__global__ void __launch_bounds__(rt::kWarp) write_threshold(const Selection* state, int32_t* halves) {
  if (threadIdx.x >= 2) return;
  halves[threadIdx.x] = static_cast<int32_t>(state->prefix >> (threadIdx.x == 0 ? 32 : 0));
}

ir::Kernel prune_threshold_gpu(const NodeView& node) {
  std::vector<int64_t> counts, first;
  int64_t total = 0, num_blocks = 0;
  for (size_t i = 1; i < node.in.size(); ++i) {
    counts.push_back(node.in_type(i).shape.num_elements());
    first.push_back(total);
    total += counts.back();
    num_blocks += num_runs(counts.back(), kRun);
  }
  const bool by_value = node.attrs.integer_or("by_value", 0) != 0;
  const auto run = [=](const KernelArgs& args) {
    auto* state = reinterpret_cast<Selection*>(args.workspace);
    auto* of_blocks = reinterpret_cast<float*>(args.workspace + sizeof(Selection));
    void* const stream = args.stream->handle();
    rt::launch(begin, {1, rt::kWarp}, stream, input_of<float>(args, 0), total, state);
    for (int shift = 64 - kBits; shift >= 0; shift -= kBits) {
      float* next = of_blocks;
      for_many_tensors<Scores>(
          counts, kRun,
          [&](size_t i) {
            return Scores{input_of<float>(args, i + 1), first[i]};
          },
          [&](const ManyTensors<Scores>& all) {
            rt::launch(count_digits, {all.num_blocks, kBlockThreads}, stream, all, state, next, shift,
                       by_value);
            next += all.num_blocks * kDigits;
          });
      rt::launch(choose_digit, {1, kBlockThreads}, stream, of_blocks, num_blocks, state, shift);
    }
    rt::launch(write_threshold, {1, rt::kWarp}, stream, state, output_of<int32_t>(args, 0));
  };
  const int64_t count_bytes = num_blocks * kDigits * int64_t{sizeof(float)};
  return {.run = run, .workspace_bytes = int64_t{sizeof(Selection)} + count_bytes};
}

/// A rule for the elements of a mask: below a threshold.
struct BelowThreshold {
  const float* scores;
  const int32_t* threshold;
  int64_t first;
  bool by_value;
  RT_DEVICE bool operator()(int64_t i) const {
    return prune_key(scores[i], by_value, static_cast<uint32_t>(first + i)) < key_of_halves(threshold);
  }
};
/// A rule for the elements of a mask: the smallest of each group.
struct SmallestOfGroup {
  const float* scores;
  const float* sparsity;
  int64_t group;
  int64_t stride;
  bool by_value;
  RT_DEVICE bool operator()(int64_t i) const {
    const int64_t pruned = num_pruned(static_cast<double>(*sparsity), group);
    return is_pruned_in_group(scores, by_value, i, group, stride, pruned);
  }
};

/// Sets a mask; one thread per byte.
template <typename Rule>
__global__ void __launch_bounds__(kBlockThreads) set_mask(Rule rule, uint8_t* mask, int64_t count) {
  for (int64_t at = first_element(); at * kMaskBits < count; at += element_stride()) {
    int byte = 0;
    for (int64_t k = 0; k < kMaskBits && at * kMaskBits + k < count; ++k)
      byte |= rule(at * kMaskBits + k) ? 1 << k : 0;
    mask[at] = static_cast<uint8_t>(byte);
  }
}

int64_t mask_blocks(int64_t count) { return num_stride_blocks(num_mask_bytes(count)); }

ir::Kernel prune_mask_gpu(const NodeView& node) {
  const int64_t count = node.in_type(1).shape.num_elements(), first = node.attrs.integer("first");
  const bool by_value = node.attrs.integer_or("by_value", 0) != 0;
  const auto run = [=](const KernelArgs& args) {
    const BelowThreshold rule{input_of<float>(args, 1), input_of<int32_t>(args, 2), first, by_value};
    rt::launch(set_mask<BelowThreshold>, {mask_blocks(count), kBlockThreads}, args.stream->handle(), rule,
               output_of<uint8_t>(args, 0), count);
  };
  return {.run = run};
}

ir::Kernel prune_groups_gpu(const NodeView& node) {
  const int64_t count = node.in_type(1).shape.num_elements();
  const int64_t group = node.attrs.integer("group"), stride = node.attrs.integer("stride");
  const bool by_value = node.attrs.integer_or("by_value", 0) != 0;
  const auto run = [=](const KernelArgs& args) {
    const SmallestOfGroup rule{input_of<float>(args, 1), input_of<float>(args, 2), group, stride, by_value};
    rt::launch(set_mask<SmallestOfGroup>, {mask_blocks(count), kBlockThreads}, args.stream->handle(), rule,
               output_of<uint8_t>(args, 0), count);
  };
  return {.run = run};
}

__global__ void __launch_bounds__(kBlockThreads)
    score_growth(const float* scores, const uint8_t* mask, float* out, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride())
    out[i] = grow_score_of(scores[i], is_pruned(mask, i));
}

ir::Kernel grow_score_gpu(const NodeView& node) {
  const int64_t count = node.in_type(0).shape.num_elements();
  const auto run = [=](const KernelArgs& args) {
    rt::launch(score_growth, {num_stride_blocks(count), kBlockThreads}, args.stream->handle(),
               input_of<float>(args, 0), input_of<uint8_t>(args, 1), output_of<float>(args, 0), count);
  };
  return {.run = run};
}

const GpuKernels kKernels = {{.op = "prune_threshold", .one = prune_threshold_gpu},
                             {.op = "prune_mask", .one = prune_mask_gpu},
                             {.op = "prune_groups", .one = prune_groups_gpu},
                             {.op = "grow_score", .one = grow_score_gpu}};

}  // namespace
}  // namespace hearth::ops
