#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "ops/pool/window.h"

namespace hearth::ops {
namespace {

/// Maximum number of channels per task; a task processes some channels of one image.
constexpr int64_t kChannels = 64;

/// Maxima of kChannels channels per window, and the index of each maximum in its window.
struct Largest {
  float* value;
  int32_t* tap_index;

  Largest at(int64_t run) const { return {value + run * kChannels, tap_index + run * kChannels}; }
};

/// Updates maxima and their indices with the values `in` of window element `tap`, or tap_indices[i] + tap if
/// kPlaced. NaN counts as larger than any number, as in PyTorch.
template <bool kPlaced>
inline __attribute__((always_inline)) void widen_by(const float* in, const int32_t* tap_indices, int32_t tap,
                                                    float* best, int32_t* tap_index, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const bool wins = (in[i] > best[i]) | (in[i] != in[i]);
    best[i] = wins ? in[i] : best[i];
    tap_index[i] = wins ? (kPlaced ? tap_indices[i] : 0) + tap : tap_index[i];
  }
}
/// Updates the maxima of `count` elements with window element `tap`.
HEARTH_CLONES void widen(const float* in, int32_t tap, float* best, int32_t* tap_index, int64_t count) {
  widen_by<false>(in, nullptr, tap, best, tap_index, count);
}
/// Updates maxima with the maxima of another line, whose indices within that line are tap_indices.
HEARTH_CLONES void widen_placed(const float* in, const int32_t* tap_indices, int32_t tap, float* best,
                                int32_t* tap_index, int64_t count) {
  widen_by<true>(in, tap_indices, tap, best, tap_index, count);
}
HEARTH_CLONES void start_placed(const float* in, const int32_t* tap_indices, int32_t tap, float* best,
                                int32_t* tap_index, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    best[i] = in[i];
    tap_index[i] = tap_indices[i] + tap;
  }
}
HEARTH_CLONES void narrow(const int32_t* tap_index, uint8_t* out, int64_t count) {
  for (int64_t c = 0; c < count; ++c) out[c] = static_cast<uint8_t>(tap_index[c]);
}

struct Task {
  int64_t image, channel, count;
};
Task task_of(const Pool& pool, int64_t index) {
  const int64_t runs = (pool.channels + kChannels - 1) / kChannels;
  const int64_t channel = index % runs * kChannels;
  return {index / runs, channel, std::min(kChannels, pool.channels - channel)};
}

/// Computes the maxima of the 1 x kernel windows of one line of the image.
void pool_line(const Pool& pool, const float* line, const Largest& to) {
  for (int64_t ox = 0; ox < pool.out_w; ++ox) {
    const int64_t first = pool.taps(ox, pool.in_w).begin;
    const Largest window = to.at(ox);
    std::copy_n(line + (ox * pool.stride - pool.padding + first) * kChannels, kChannels, window.value);
    std::fill_n(window.tap_index, kChannels, static_cast<int32_t>(first));
  }
  for (int64_t k = 1; k < pool.kernel; ++k) {
    // Windows [begin, end) have their element k inside of the image; they are processed in one call if these
    // elements are adjacent (stride 1).
    const int64_t begin = std::max<int64_t>(0, (pool.padding - k + pool.stride - 1) / pool.stride);
    const int64_t last = pool.in_w - 1 + pool.padding - k;
    const int64_t end = last < 0 ? 0 : std::min(pool.out_w, last / pool.stride + 1);
    const int64_t together = pool.stride == 1 ? end - begin : 1;
    for (int64_t ox = begin; ox < end; ox += together) {
      const Largest window = to.at(ox);
      widen(line + (ox * pool.stride - pool.padding + k) * kChannels, static_cast<int32_t>(k), window.value,
            window.tap_index, together * kChannels);
    }
  }
}

/// Pools the channels of a task: maxima along lines, then of these along columns, because max pooling is
/// separable.
void pool_task(const Pool& pool, const KernelArgs& args, const Task& task, const Largest& lines,
               const Largest& result, float* line) {
  std::fill_n(line, pool.in_w * kChannels, 0.0F);
  for (int64_t y = 0; y < pool.in_h; ++y) {
    for (int64_t x = 0; x < pool.in_w; ++x) {
      cpu::load_f32(pool.dtype, args.in[0], pool.in_at(task.image, y, x) + task.channel, task.count,
                    line + x * kChannels);
    }
    pool_line(pool, line, lines.at(y * pool.out_w));
  }
  const int64_t width = pool.out_w * kChannels;
  for (int64_t oy = 0; oy < pool.out_h; ++oy) {
    const Range taps = pool.taps(oy, pool.in_h);
    for (int64_t k = taps.begin; k < taps.end; ++k) {
      const Largest from = lines.at((oy * pool.stride - pool.padding + k) * pool.out_w);
      (k == taps.begin ? start_placed : widen_placed)(from.value, from.tap_index,
                                                      static_cast<int32_t>(k * pool.kernel), result.value,
                                                      result.tap_index, width);
    }
    for (int64_t ox = 0; ox < pool.out_w; ++ox) {
      const int64_t at = pool.out_at(task.image, oy, ox) + task.channel;
      cpu::store_f32(pool.dtype, result.at(ox).value, args.out[0], at, task.count);
      narrow(result.at(ox).tap_index, args.output<uint8_t>(1) + at, task.count);
    }
  }
}

/// Shape of an image's gradient including padding, so that an argmax in the padding needs no check.
struct Padded {
  int64_t height, width;

  explicit Padded(const Pool& pool)
      : height(std::max((pool.out_h - 1) * pool.stride + pool.kernel, pool.in_h + pool.padding)),
        width(std::max((pool.out_w - 1) * pool.stride + pool.kernel, pool.in_w + pool.padding)) {}
  int64_t num_floats() const { return height * width * kChannels; }
  int64_t at(int64_t y, int64_t x) const { return (y * width + x) * kChannels; }
};

/// Computes the gradient of a task's channels: adds each dy to the position of its window's maximum, in
/// window order.
void give_task(const Pool& pool, const KernelArgs& args, const Task& task, float* sums) {
  alignas(64) float scratch[kChannels];
  const Padded padded(pool);
  int64_t offsets[256] = {};
  for (int64_t k = 0; k < pool.kernel * pool.kernel; ++k)
    offsets[k] = padded.at(k / pool.kernel, k % pool.kernel);
  std::fill_n(sums, padded.num_floats(), 0.0F);
  for (int64_t oy = 0; oy < pool.out_h; ++oy) {
    for (int64_t ox = 0; ox < pool.out_w; ++ox) {
      const int64_t at = pool.out_at(task.image, oy, ox) + task.channel;
      const float* dy = cpu::as_f32(pool.dtype, args.in[0], at, task.count, scratch);
      const uint8_t* argmax = args.input<uint8_t>(1) + at;
      float* corner = sums + padded.at(oy * pool.stride, ox * pool.stride);
      for (int64_t c = 0; c < task.count; ++c) corner[offsets[argmax[c]] + c] += dy[c];
    }
  }
  for (int64_t y = 0; y < pool.in_h; ++y) {
    for (int64_t x = 0; x < pool.in_w; ++x) {
      cpu::store_f32(pool.dtype, sums + padded.at(y + pool.padding, x + pool.padding), args.out[0],
                     pool.in_at(task.image, y, x) + task.channel, task.count);
    }
  }
}

/// Returns a kernel that calls body(args, task, buffer) for all tasks in parallel; `buffer` is per thread and
/// has `floats` floats.
template <typename Body>
Kernel tasks_kernel(const Pool& pool, int num_threads, int64_t floats, Body body) {
  const int64_t tasks = pool.batch * ((pool.channels + kChannels - 1) / kChannels);
  const auto threads = static_cast<int>(std::clamp<int64_t>(tasks, 1, num_threads));
  const int64_t bytes = cpu::round_up(floats * int64_t{sizeof(float)}, 64);
  const auto run = [=](const KernelArgs& args) {
    args.threads->run_tasks(tasks, threads, [&](int64_t index, int thread) {
      body(args, task_of(pool, index), reinterpret_cast<float*>(args.workspace + thread * bytes));
    });
  };
  return {.run = run, .workspace_bytes = threads * bytes};
}

}  // namespace

Kernel wide_max_pool(const Pool& pool, int num_threads) {
  const int64_t image = pool.in_h * pool.out_w * kChannels, width = pool.out_w * kChannels;
  return tasks_kernel(pool, num_threads, 2 * (image + width) + pool.in_w * kChannels,
                      [=](const KernelArgs& args, const Task& task, float* local) {
                        const Largest lines{local, reinterpret_cast<int32_t*>(local + image)};
                        float* rest = local + 2 * image;
                        const Largest result{rest, reinterpret_cast<int32_t*>(rest + width)};
                        pool_task(pool, args, task, lines, result, rest + 2 * width);
                      });
}

Kernel wide_max_pool_grad(const Pool& pool, int num_threads) {
  return tasks_kernel(
      pool, num_threads, Padded(pool).num_floats(),
      [=](const KernelArgs& args, const Task& task, float* local) { give_task(pool, args, task, local); });
}

}  // namespace hearth::ops
