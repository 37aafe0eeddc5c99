#pragma once

#include <cstdint>

namespace hearth::cpu {

/// Columns of a packed right-hand panel: [k][kPanel].
inline constexpr int64_t kPanel = 32;
/// Rows of a tile, and words of 4 bytes in each of them.
inline constexpr int64_t kTile = 16;
/// Transformed positions of a Winograd F(4x4,3x3) tile.
inline constexpr int64_t kWinogradPositions = 36;

/// The part of a tile that lies inside an image: rows [y0, y1), columns [x0, x1) of the tile's own
/// coordinates.
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

/// Output of a Winograd tile: bias and residual may be null.
struct Epilogue {
  const float* bias = nullptr;
  Field<const float> residual;
  bool relu = false;
};

/// One row of pooled outputs of convolution + relu + 2x2 max-pool. `padded` is the top left of the two
/// convolution rows' patches in an image copied with its padding; weights are [taps][channels].
struct ConvPoolRow {
  const float* padded = nullptr;
  int64_t row = 0;    ///< floats from one image row to the next
  int64_t pixel = 0;  ///< floats from one pixel to the next
  const int32_t* tap_offsets = nullptr;
  int64_t num_taps = 0;
  int64_t channels = 0;
  int64_t out_w = 0;  ///< pooled pixels in the row
};

/// One tap of a depthwise convolution: where it finds the channels of pixel 0, and its weights of them.
struct DepthwiseTap {
  const float* in = nullptr;
  float* w = nullptr;
};
/// Pixels of a row that all see the same taps.
struct DepthwiseRun {
  const DepthwiseTap* taps = nullptr;
  int64_t num_taps = 0;
  int64_t row_taps =
      1;  ///< taps come in rows of so many, each of which finds what lies in_step after the last's
  int64_t first = 0;     ///< number of the first pixel; taps and outputs are counted from pixel 0
  int64_t count = 0;     ///< pixels
  int64_t in_step = 0;   ///< floats from what a tap finds for one pixel to what it finds for the next
  int64_t out_step = 0;  ///< floats from one pixel to the next
  int64_t channel = 0;   ///< the first of them
  int64_t channels = 0;
};

/// Rows of channels that a batch normalization reads, and its constants of each channel.
struct NormRows {
  int64_t count = 0;
  int64_t width = 0;
  const float* mean = nullptr;
  const float* scale = nullptr;
  const float* bias = nullptr;
};

/// Inner loops compiled once per instruction set; each works on f32 and any sizes.
struct SimdKernels {
  const char* isa;  ///< its name, as Linux lists it
  /// c[m][n] (+)= sum over k of a[i * a_row + p * a_k] * b[p * b_row + j].
  void (*gemm)(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row, int64_t a_k, const float* b,
               int64_t b_row, float* c, int64_t c_row, bool accumulate);
  /// c[i * c_row + j * c_col] = dot(a row i, b row j), both contiguous over k.
  void (*dot)(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row, const float* b, int64_t b_row,
              float* c, int64_t c_row, int64_t c_col);
  /// out[c * out_row + r] = in[r * in_row + c].
  void (*transpose)(const float* in, int64_t in_row, int64_t rows, int64_t columns, float* out,
                    int64_t out_row);
  /// B^T d B of a 6x6 tile: v[position * v_stride + c].
  void (*winograd_input)(Field<const float> d, TileWindow window, int64_t channels, float* v,
                         int64_t v_stride);
  /// A dy A^T of a 4x4 tile.
  void (*winograd_cotangent)(Field<const float> dy, TileWindow window, int64_t channels, float* z,
                             int64_t z_stride);
  /// A^T m A of a 6x6 tile with its epilogue, into the window of a 4x4 tile.
  void (*winograd_output)(const float* m, int64_t m_stride, TileWindow window, int64_t channels,
                          Epilogue epilogue, Field<float> y);
  /// G g G^T for `count` neighboring filters; tap t at g + t * g_stride; position p to u + p * u_stride.
  void (*winograd_filter)(const float* g, int64_t g_stride, int64_t count, bool rotate, float* u,
                          int64_t u_stride);
  /// G^T u G, the adjoint: nine taps from 36 positions.
  void (*winograd_filter_gradient)(const float* u, int64_t u_stride, int64_t count, float* g,
                                   int64_t g_stride);
  /// pooled[x][c] = max over the window of relu(conv + bias); argmax its place, 2 * row + column.
  void (*conv_pool_forward)(const ConvPoolRow& row, const float* w, const float* bias, float* pooled,
                            uint8_t* argmax);
  /// dw[tap][c] and db[c] += what flows through the maxima of one row.
  void (*conv_pool_backward)(const ConvPoolRow& row, const float* pooled, const uint8_t* argmax,
                             const float* dpooled, float* dw, float* db);
  /// Soft-caps x in place, x = cap tanh(x / cap) (cap 0: as it is), and returns the largest; -inf for none.
  float (*cap_max)(float* x, int64_t count, float cap);
  /// out[i] = exp(factor in[i] - shift), to 2 ulp, 0 below e^-64, NaN kept; returns the sum. May work in
  /// place.
  float (*exp_sum)(const float* in, float factor, float shift, float* out, int64_t count);
  /// One row of attention on the way back: s becomes p = exp(capped factor s - lse), and dp the cotangent of
  /// factor s before the cap, p (dp - delta) (1 - tanh(factor s / cap)^2).
  void (*softmax_back)(float* s, float* dp, int64_t count, float factor, float lse, float delta, float cap);
  /// sum[i] += exp(x[i] - shift[i]).
  void (*add_exp)(const float* x, const float* shift, float* sum, int64_t count);
  /// x[i] = factor[i] exp(x[i] - shift[i]) (1 - (x[i] / cap)^2); without the last for cap 0.
  void (*scaled_exp)(float* x, const float* shift, const float* factor, int64_t count, float cap);
  /// y = silu(v), v = (x - mean) scale + bias.
  void (*norm_silu)(const NormRows& rows, const float* x, float* y);
  /// g = dy silu'(v); sum[c] += g and sum_x[c] += g (x - mean), row by row, unless both are null.
  void (*norm_silu_back)(const NormRows& rows, const float* x, const float* dy, float* g, float* sum,
                         float* sum_x);
  /// out[i * out_step + c] = sum over taps of in[i * in_step + c] * w[c].
  void (*depthwise)(const DepthwiseRun& run, float* out);
  /// w[c] of each tap += sum over i of in[i * in_step + c] * dy[i * out_step + c].
  void (*depthwise_weights)(const DepthwiseRun& run, const float* dy);
  /// gemm and dot over pairs: each float of a and of b is two neighboring terms in bf16, the first in its
  /// lower half; k counts pairs. Null where the processor has no instruction for it.
  decltype(gemm) gemm_pairs = nullptr;
  decltype(dot) dot_pairs = nullptr;
  /// gemm_pairs by tiles: n and k are multiples of kTile. a lies in tiles [ceil(m / kTile)][k / kTile] of
  /// [kTile][kTile], rows of tiles a_row floats apart, and zeros where m ends. Null without AMX.
  void (*gemm_tiles)(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row, const float* b,
                     int64_t b_row, float* c, int64_t c_row, bool accumulate) = nullptr;
};

/// The best table this processor runs; chosen once.
const SimdKernels& simd();
/// Makes simd() a copy of this table, for tests of what is built on it; no kernel may run meanwhile.
void use_simd(const SimdKernels& kernels);

extern const SimdKernels kBaselineKernels;
#if defined(__x86_64__)
extern const SimdKernels kAvx2Kernels;
extern const SimdKernels kAvx512Kernels;
/// kAvx512Kernels with matmuls of pairs.
SimdKernels with_bf16_pairs(SimdKernels kernels);
/// These with matmuls by tiles, where the processor has them and the system lets this process use them.
SimdKernels with_tiles(SimdKernels kernels);
#endif

}  // namespace hearth::cpu
