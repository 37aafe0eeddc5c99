#include "ops/pool/pixels_gpu.h"
#include "ops/pool/pool.h"
#include "ops/reduce/columns.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Shape of a batch of `count` images.
struct Images {
  explicit Images(const Shape& shape)
      : count(shape[0]), pixels(shape[1] * shape[2]), channels(static_cast<int>(shape[3])) {}
  /// Returns the index in an array [count, channels] of the first channel of the image that contains this
  /// pixel.
  RT_DEVICE int64_t channels_of(int64_t pixel) const {
    return int64_t{static_cast<uint32_t>(pixel) / static_cast<uint32_t>(pixels)} * channels;
  }
  int64_t count;
  int64_t pixels;
  int channels;
};

struct Sum {
  float value;
  RT_DEVICE void join(const Sum& other) { value += other.value; }
};

/// Computes y = x times the factor of the image and channel; first_row() is a pixel of the batch.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    multiply_channels(const T* x, const T* factors, T* y, Images images) {
  const int channel = first_column<n>();
  if (channel >= images.channels) return;
  for (int64_t row = first_row(); row < images.count * images.pixels; row += row_stride()) {
    const rt::Vec<T, n> local = rt::load<T, n>(x + row * images.channels + channel);
    const rt::Vec<T, n> by = rt::load<T, n>(factors + images.channels_of(row) + channel);
    rt::Vec<T, n> result;
    RT_UNROLL
    for (int c = 0; c < n; ++c)
      result.at[c] = rt::from_float<T>(rt::to_float(local.at[c]) * rt::to_float(by.at[c]));
    rt::store(y + row * images.channels + channel, result);
  }
}

/// Sums a * b over the pixels of each image, per channel. blockIdx.y is the image; threadIdx.y divides its
/// pixels.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads) dot_channels(const T* a, const T* b, T* y, Images images) {
  const int channel = first_column<n>();
  const int64_t first = blockIdx.y * images.pixels * images.channels + channel;
  Sum sums[n] = {};
  for (int64_t p = threadIdx.y; channel < images.channels && p < images.pixels; p += blockDim.y) {
    const rt::Vec<T, n> left = rt::load<T, n>(a + first + p * images.channels);
    const rt::Vec<T, n> right = rt::load<T, n>(b + first + p * images.channels);
    RT_UNROLL
    for (int c = 0; c < n; ++c) sums[c].value += rt::to_float(left.at[c]) * rt::to_float(right.at[c]);
  }
  T* out = y + static_cast<int64_t>(blockIdx.y) * images.channels;
  join_lanes(sums, images.channels,
             [&](int column, const Sum& sum) { out[column] = rt::from_float<T>(sum.value); });
}

/// Averages the pixels of each image, per channel. blockIdx.y is the image; threadIdx.y divides its pixels.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads) average(const T* x, T* y, Images images) {
  const int channel = first_column<n>();
  const int64_t first = blockIdx.y * images.pixels * images.channels + channel;
  Sum sums[n] = {};
  for (int64_t p = threadIdx.y; channel < images.channels && p < images.pixels; p += blockDim.y) {
    const rt::Vec<T, n> values = rt::load<T, n>(x + first + p * images.channels);
    RT_UNROLL
    for (int c = 0; c < n; ++c) sums[c].value += rt::to_float(values.at[c]);
  }
  T* out = y + static_cast<int64_t>(blockIdx.y) * images.channels;
  const float share = 1 / static_cast<float>(images.pixels);
  join_lanes(sums, images.channels,
             [&](int column, const Sum& sum) { out[column] = rt::from_float<T>(sum.value * share); });
}

/// Computes the gradient of average(): dy / pixels for every pixel; first_row() is a pixel of the batch.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads) spread(const T* dy, T* dx, Images images) {
  const int channel = first_column<n>();
  if (channel >= images.channels) return;
  const float share = 1 / static_cast<float>(images.pixels);
  for (int64_t row = first_row(); row < images.count * images.pixels; row += row_stride()) {
    const rt::Vec<T, n> given = rt::load<T, n>(dy + images.channels_of(row) + channel);
    rt::Vec<T, n> shares;
    RT_UNROLL
    for (int c = 0; c < n; ++c) shares.at[c] = rt::from_float<T>(rt::to_float(given.at[c]) * share);
    rt::store(dx + row * images.channels + channel, shares);
  }
}

/// Returns the launch shape of dot_channels() and average().
rt::Shape image_blocks(const Images& images, int n) {
  constexpr int64_t kMaxImages = 65535;
  if (images.count > kMaxImages) refuse_on_gpu("the number of images per batch", kMaxImages, images.count);
  rt::Shape grid = ColumnBlocks(images.pixels, images.channels, n).for_parts();
  grid.blocks.y = static_cast<unsigned>(images.count);
  return grid;
}
/// Returns the launch shape of multiply_channels() and spread().
rt::Shape pixel_blocks(const Images& images, int n) {
  return ColumnBlocks(counted_pixels(images.count, images.pixels, 1), images.channels, n).for_rows();
}

template <typename T, int n>
ir::Kernel make_scale(const NodeView& node) {
  const Images images(node.in_type(0).shape);
  const auto run = [images, grid = pixel_blocks(images, n)](const KernelArgs& args) {
    rt::launch(multiply_channels<T, n>, grid, args.stream->handle(), input_of<T>(args, 0),
               input_of<T>(args, 1), output_of<T>(args, 0), images);
  };
  return {.run = run};
}
template <typename T, int n>
ir::Kernel make_dot(const NodeView& node) {
  const Images images(node.in_type(0).shape);
  const auto run = [images, grid = image_blocks(images, n)](const KernelArgs& args) {
    rt::launch(dot_channels<T, n>, grid, args.stream->handle(), input_of<T>(args, 0), input_of<T>(args, 1),
               output_of<T>(args, 0), images);
  };
  return {.run = run};
}
template <typename T, int n>
ir::Kernel make_average(const NodeView& node) {
  const Images images(node.in_type(0).shape);
  const auto run = [images, grid = image_blocks(images, n)](const KernelArgs& args) {
    rt::launch(average<T, n>, grid, args.stream->handle(), input_of<T>(args, 0), output_of<T>(args, 0),
               images);
  };
  return {.run = run};
}
template <typename T, int n>
ir::Kernel make_spread(const NodeView& node) {
  const Images images(node.out_type(0).shape);
  const auto run = [images, grid = pixel_blocks(images, n)](const KernelArgs& args) {
    rt::launch(spread<T, n>, grid, args.stream->handle(), input_of<T>(args, 0), output_of<T>(args, 0),
               images);
  };
  return {.run = run};
}

ir::Kernel scale_channels_gpu(const NodeView& node) {
  return with_columns(node.in_type(0), [&](auto x, auto n) { return make_scale<decltype(x), n>(node); });
}
ir::Kernel channel_dot_gpu(const NodeView& node) {
  return with_columns(node.in_type(0), [&](auto a, auto n) { return make_dot<decltype(a), n>(node); });
}
ir::Kernel global_avg_pool_gpu(const NodeView& node) {
  return with_columns(node.in_type(0), [&](auto x, auto n) { return make_average<decltype(x), n>(node); });
}
ir::Kernel global_avg_pool_grad_gpu(const NodeView& node) {
  return with_columns(node.in_type(0), [&](auto dy, auto n) { return make_spread<decltype(dy), n>(node); });
}

const GpuKernels kKernels = {{.op = "scale_channels", .one = scale_channels_gpu},
                             {.op = "channel_dot", .one = channel_dot_gpu},
                             {.op = "global_avg_pool", .one = global_avg_pool_gpu},
                             {.op = "global_avg_pool_grad", .one = global_avg_pool_grad_gpu}};

}  // namespace
}  // namespace hearth::ops
