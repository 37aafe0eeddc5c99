#pragma once

#include <cstdint>

namespace hearth::cpu {

/// Columns of a packed right-hand panel: [k][kPanel].
inline constexpr int64_t kPanel = 32;
/// Rows of an AMX tile, and 4-byte words per row.
inline constexpr int64_t kTile = 16;
/// Number of elements of a transformed Winograd F(4x4,3x3) tile, 6 x 6.
inline constexpr int64_t kWinogradPositions = 36;

/// Window of a tile that is inside the image: rows [y0, y1) and columns [x0, x1), relative to the tile.
struct TileWindow {
  int64_t y0 = 0;
  int64_t y1 = 0;
  int64_t x0 = 0;
  int64_t x1 = 0;
};

/// A 2-D field of channel vectors: element (y, x, c) at data[y * row + x * pixel + c].
template <typename T>
struct Field {
  T* data = nullptr;
  int64_t row = 0;
  int64_t pixel = 0;
};

/// Operands of the operations that are applied to a Winograd output tile; bias and residual may be null.
struct Epilogue {
  const float* bias = nullptr;
  Field<const float> residual;
  bool relu = false;
};

/// Arguments for one row of pooled outputs of convolution + relu + 2x2 max-pool. `padded` points into a
/// padded copy of the image, to the top left input of the row's first pooled pixel. Weights are
/// [taps][channels].
struct ConvPoolRow {
  const float* padded = nullptr;
  int64_t row = 0;    ///< floats from one image row to the next
  int64_t pixel = 0;  ///< floats from one pixel to the next
  /// Offset in floats of each tap from the top left of a patch.
  const int32_t* tap_offsets = nullptr;
  int64_t num_taps = 0;
  int64_t channels = 0;
  int64_t out_w = 0;  ///< pooled pixels in the row
};

/// A tap (filter position) of a depthwise convolution.
struct DepthwiseTap {
  /// Input channels that this tap reads to compute pixel 0.
  const float* in = nullptr;
  /// Weights of the tap, one per channel.
  float* w = nullptr;
};
/// A run of pixels in one image row that use the same taps.
struct DepthwiseRun {
  const DepthwiseTap* taps = nullptr;
  int64_t num_taps = 0;
  /// Number of taps per row of the filter: each tap of a row reads in_step floats after the tap before it.
  int64_t row_taps = 1;
  int64_t first = 0;     ///< index of the first pixel; tap inputs and outputs are relative to pixel 0
  int64_t count = 0;     ///< number of pixels
  int64_t in_step = 0;   ///< floats from a tap's input for one pixel to its input for the next
  int64_t out_step = 0;  ///< floats from one output pixel to the next
  int64_t channel = 0;   ///< index of the first channel
  int64_t channels = 0;
};

/// Rows of channels read by a batch normalization, and its constants per channel.
struct NormRows {
  int64_t count = 0;
  int64_t width = 0;
  const float* mean = nullptr;
  const float* scale = nullptr;
  const float* bias = nullptr;
};

/// Table of inner loops, which are compiled once per instruction set. All work on f32 and arrays of any size.
struct SimdKernels {
  const char* isa;  ///< name of the instruction set, as in Linux's /proc/cpuinfo
  /// c[m][n] (+)= sum over k of a[i * a_row + p * a_k] * b[p * b_row + j].
  void (*gemm)(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row, int64_t a_k, const float* b,
               int64_t b_row, float* c, int64_t c_row, bool accumulate);
  /// c[i * c_row + j * c_col] = dot(a row i, b row j), both contiguous over k.
  void (*dot)(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row, const float* b, int64_t b_row,
              float* c, int64_t c_row, int64_t c_col);
  /// out[c * out_row + r] = in[r * in_row + c].
  void (*transpose)(const float* in, int64_t in_row, int64_t rows, int64_t columns, float* out,
                    int64_t out_row);
  /// Transforms a 6x6 input tile: B^T d B, stored at v[position * v_stride + c].
  void (*winograd_input)(Field<const float> d, TileWindow window, int64_t channels, float* v,
                         int64_t v_stride);
  /// Transforms a 4x4 tile of output gradients: A dy A^T.
  void (*winograd_cotangent)(Field<const float> dy, TileWindow window, int64_t channels, float* z,
                             int64_t z_stride);
  /// Transforms a 6x6 product tile: A^T m A with the epilogue, stored in the window of a 4x4 output tile.
  void (*winograd_output)(const float* m, int64_t m_stride, TileWindow window, int64_t channels,
                          Epilogue epilogue, Field<float> y);
  /// Transforms `count` adjacent filters: G g G^T. Tap t is at g + t * g_stride, position p at u + p *
  /// u_stride.
  void (*winograd_filter)(const float* g, int64_t g_stride, int64_t count, bool rotate, float* u,
                          int64_t u_stride);
  /// Transforms filter gradients back: G^T u G, nine taps from 36 positions.
  void (*winograd_filter_gradient)(const float* u, int64_t u_stride, int64_t count, float* g,
                                   int64_t g_stride);
  /// pooled[x][c] = max over the window of relu(conv + bias); argmax is its position, 2 * row + column.
  void (*conv_pool_forward)(const ConvPoolRow& row, const float* w, const float* bias, float* pooled,
                            uint8_t* argmax);
  /// Adds one row's gradients to dw[tap][c] and db[c]; they flow through the window's max only.
  void (*conv_pool_backward)(const ConvPoolRow& row, const float* pooled, const uint8_t* argmax,
                             const float* dpooled, float* dw, float* db);
  /// Soft-caps x in place, x = cap tanh(x / cap) (cap 0: unchanged), and returns the max; -inf if count is 0.
  float (*cap_max)(float* x, int64_t count, float cap);
  /// out[i] = exp(factor in[i] - shift), with error at most 2 ulp, 0 below e^-64, NaN kept. Returns the sum
  /// of `out`, which may equal `in`.
  float (*exp_sum)(const float* in, float factor, float shift, float* out, int64_t count);
  /// Backward pass of one row of attention, in place. With x = factor s and its soft-capped value y: s
  /// becomes p = exp(y - lse), and dp becomes the gradient of x, p (dp - delta) (1 - tanh(x / cap)^2).
  void (*softmax_back)(float* s, float* dp, int64_t count, float factor, float lse, float delta, float cap);
  /// sum[i] += exp(x[i] - shift[i]).
  void (*add_exp)(const float* x, const float* shift, float* sum, int64_t count);
  /// x[i] = factor[i] exp(x[i] - shift[i]) (1 - (x[i] / cap)^2); without the last factor if cap is 0.
  void (*scaled_exp)(float* x, const float* shift, const float* factor, int64_t count, float cap);
  /// y = silu(v) with v = (x - mean) scale + bias.
  void (*norm_silu)(const NormRows& rows, const float* x, float* y);
  /// g = dy silu'(v); adds g to sum[c] and g (x - mean) to sum_x[c], row by row, unless both are null.
  void (*norm_silu_back)(const NormRows& rows, const float* x, const float* dy, float* g, float* sum,
                         float* sum_x);
  /// out[i * out_step + c] = sum over taps of in[i * in_step + c] * w[c].
  void (*depthwise)(const DepthwiseRun& run, float* out);
  /// Weight gradients of each tap: w[c] += sum over i of in[i * in_step + c] * dy[i * out_step + c].
  void (*depthwise_weights)(const DepthwiseRun& run, const float* dy);
  /// gemm and dot over pairs of bf16: each float of a and b holds two adjacent terms, the first in its lower
  /// half; k counts pairs. Null if the processor has no instruction for it.
  decltype(gemm) gemm_pairs = nullptr;
  decltype(dot) dot_pairs = nullptr;
  /// gemm_pairs by AMX tiles; n and k are multiples of kTile. a is packed as [ceil(m / kTile)][k / kTile]
  /// tiles of [kTile][kTile], with a_row floats between rows of tiles and zeros after row m. Null without
  /// AMX.
  void (*gemm_tiles)(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row, const float* b,
                     int64_t b_row, float* c, int64_t c_row, bool accumulate) = nullptr;
};

/// Returns the best table for this processor; chosen once.
const SimdKernels& simd();
/// Makes simd() return a copy of this table, for tests; no kernel may be running.
void use_simd(const SimdKernels& kernels);

extern const SimdKernels kBaselineKernels;
#if defined(__x86_64__)
extern const SimdKernels kAvx2Kernels;
extern const SimdKernels kAvx512Kernels;
/// Returns the table (kAvx512Kernels) with matmuls of bf16 pairs added.
SimdKernels with_bf16_pairs(SimdKernels kernels);
/// Returns the table with AMX matmuls added, if processor and operating system support them.
SimdKernels with_tiles(SimdKernels kernels);
#endif

}  // namespace hearth::cpu
