#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "ops/pool/window.h"

namespace hearth::ops {
namespace {

/// Channels that a task takes, of one image.
constexpr int64_t kChannels = 64;

/// Maxima of runs of kChannels channels, and where they are.
struct Largest {
  float* value;
  int32_t* place;

  Largest at(int64_t run) const { return {value + run * kChannels, place + run * kChannels}; }
};

HEARTH_CLONES void start(const float* in, const int32_t* places, float* best, int32_t* place, int64_t count,
                         int32_t first) {
  for (int64_t c = 0; c < count; ++c) {
    best[c] = in[c];
    place[c] = first + (places == nullptr ? 0 : places[c]);
  }
}
/// NaN wins, as in torch.
HEARTH_CLONES void widen(const float* in, const int32_t* places, float* best, int32_t* place, int64_t count,
                         int32_t first) {
  for (int64_t c = 0; c < count; ++c) {
    const bool wins = (in[c] > best[c]) | (in[c] != in[c]);
    best[c] = wins ? in[c] : best[c];
    place[c] = wins ? first + (places == nullptr ? 0 : places[c]) : place[c];
  }
}
HEARTH_CLONES void narrow(const int32_t* place, uint8_t* out, int64_t count) {
  for (int64_t c = 0; c < count; ++c) out[c] = static_cast<uint8_t>(place[c]);
}

struct Task {
  int64_t image, channel, count;
};
Task task_of(const Pool& pool, int64_t index) {
  const int64_t runs = (pool.channels + kChannels - 1) / kChannels;
  const int64_t channel = index % runs * kChannels;
  return {index / runs, channel, std::min(kChannels, pool.channels - channel)};
}

/// Sets `lines` to the maxima of each line's windows.
void largest_of_lines(const Pool& pool, const void* x, const Task& task, const Largest& lines) {
  alignas(64) float scratch[kChannels];
  for (int64_t y = 0; y < pool.in_h; ++y) {
    for (int64_t ox = 0; ox < pool.out_w; ++ox) {
      const Largest to = lines.at(y * pool.out_w + ox);
      const Range taps = pool.taps(ox, pool.in_w);
      for (int64_t k = taps.begin; k < taps.end; ++k) {
        const int64_t from = pool.in_at(task.image, y, ox * pool.stride - pool.padding + k) + task.channel;
        const float* in = cpu::as_f32(pool.dtype, x, from, task.count, scratch);
        (k == taps.begin ? start : widen)(in, nullptr, to.value, to.place, task.count,
                                          static_cast<int32_t>(k));
      }
    }
  }
}

void pool_task(const Pool& pool, const KernelArgs& args, const Task& task, const Largest& lines) {
  alignas(64) float run[kChannels];
  alignas(64) int32_t place[kChannels];
  largest_of_lines(pool, args.in[0], task, lines);
  for (int64_t oy = 0; oy < pool.out_h; ++oy) {
    const Range taps = pool.taps(oy, pool.in_h);
    for (int64_t ox = 0; ox < pool.out_w; ++ox) {
      const int64_t at = pool.out_at(task.image, oy, ox) + task.channel;
      float* best = run_to_write(pool.dtype, args.out[0], at, run);
      for (int64_t k = taps.begin; k < taps.end; ++k) {
        const Largest line = lines.at((oy * pool.stride - pool.padding + k) * pool.out_w + ox);
        (k == taps.begin ? start : widen)(line.value, line.place, best, place, task.count,
                                          static_cast<int32_t>(k * pool.kernel));
      }
      cpu::store_f32(pool.dtype, best, args.out[0], at, task.count);
      narrow(place, args.output<uint8_t>(1) + at, task.count);
    }
  }
}

/// An image's sums of cotangents with its padding, where a place may lie too.
struct Padded {
  int64_t height, width;

  explicit Padded(const Pool& pool)
      : height(std::max((pool.out_h - 1) * pool.stride + pool.kernel, pool.in_h + pool.padding)),
        width(std::max((pool.out_w - 1) * pool.stride + pool.kernel, pool.in_w + pool.padding)) {}
  int64_t num_floats() const { return height * width * kChannels; }
  int64_t at(int64_t y, int64_t x) const { return (y * width + x) * kChannels; }
};

/// Adds every cotangent where its maximum was, in the order of the windows.
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

/// A kernel that calls body(args, task, floats of the thread's own) for all tasks.
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
  const int64_t floats = pool.in_h * pool.out_w * kChannels;
  return tasks_kernel(pool, num_threads, 2 * floats,
                      [=](const KernelArgs& args, const Task& task, float* own) {
                        pool_task(pool, args, task, {own, reinterpret_cast<int32_t*>(own + floats)});
                      });
}

Kernel wide_max_pool_grad(const Pool& pool, int num_threads) {
  return tasks_kernel(
      pool, num_threads, Padded(pool).num_floats(),
      [=](const KernelArgs& args, const Task& task, float* own) { give_task(pool, args, task, own); });
}

}  // namespace hearth::ops
