#include <cmath>
#include <limits>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "base/e4m3.h"
#include "ops/support.h"
#include "ops/transfer/transfer.h"

namespace hearth::ops {
namespace {

constexpr std::string_view kNoGradient = "values are encoded after the backward pass has been added";

/// Memory of an encoded array: the codes of all rows, then an exponent byte for each row.
struct Rows {
  DType dtype = DType::f32;  ///< of the array
  int64_t count = 0;
  int64_t columns = 0;

  explicit Rows(const Type& type)
      : dtype(type.dtype), count(num_rows(type.shape)), columns(type.shape.back()) {}
  Type encoded() const { return {.dtype = DType::u8, .shape = {count * (columns + 1)}}; }
  int64_t exponents() const { return count * columns; }
};

Type decoded_type(const Attrs& attrs) {
  const std::vector<int64_t>& axes = attrs.list("shape");
  return {.dtype = dtype_attr(attrs, "dtype", DType::i64), .shape = Shape(axes)};
}

bool is_encodable(const Type& type) { return is_storage_float(type.dtype) && num_rows(type.shape) > 0; }

Inferred infer_encode(const NodeView& node) {
  if (!is_encodable(node.in_type(0))) return refuse_type("x", "floating rows", node.in_type(0));
  return {.out = {Rows(node.in_type(0)).encoded()}, .error = ""};
}
Inferred infer_decode(const NodeView& node) {
  const Type type = decoded_type(node.attrs);
  if (!is_encodable(type)) return refuse_type("the decoded value", "floating rows", type);
  if (const Type codes = Rows(type).encoded(); node.in_type(0) != codes)
    return refuse_type("the codes", to_string(codes), node.in_type(0));
  return {.out = {type}, .error = ""};
}

/// Returns the largest magnitude; NaN if there is a NaN.
HEARTH_CLONES float absmax_of(const float* x, int64_t count) {
  // For floats without sign, the order of the bits is that of the values, with NaN above infinity.
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, e4m3::bits_as<uint32_t>(x[i]) & 0x7FFFFFFFU);
  return e4m3::bits_as<float>(largest);
}
HEARTH_CLONES void encode_row(const float* x, int64_t count, float inverse, uint8_t* codes) {
  for (int64_t i = 0; i < count; ++i) codes[i] = e4m3_code(x[i] * inverse);
}
HEARTH_CLONES void decode_row(const uint8_t* codes, int64_t count, float scale, float max, float* x) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = e4m3_value(codes[i]) * scale;
    x[i] = value > max ? max : value < -max ? -max : value;
  }
}
/// Limit of decoded values: rounding up may exceed the range of f16.
float max_decoded(DType dtype) {
  return dtype == DType::f16 ? kMaxF16 : std::numeric_limits<float>::infinity();
}

/// Calls body(first element, count) for tiles of a row.
template <typename Body>
void for_tiles(const Rows& rows, int64_t row, Body body) {
  for (int64_t c = 0; c < rows.columns; c += kTile)
    body(row * rows.columns + c, std::min(kTile, rows.columns - c));
}
/// Returns a kernel that calls body(args, row) for each row, in parallel.
template <typename Body>
Kernel for_rows(const Rows& rows, Body body) {
  return {.run = [=](const KernelArgs& args) {
    args.threads->parallel_for(rows.count, std::max<int64_t>(1, kGrain / rows.columns), [&](Range range) {
      for (int64_t row = range.begin; row < range.end; ++row) body(args, row);
    });
  }};
}

Kernel encode_cpu(const NodeView& node) {
  const Rows rows(node.in_type(0));
  return for_rows(rows, [rows](const KernelArgs& args, int64_t row) {
    alignas(64) float scratch[kTile];
    float absmax = 0;
    for_tiles(rows, row, [&](int64_t at, int64_t count) {
      const float both[] = {absmax,
                            absmax_of(cpu::as_f32(rows.dtype, args.in[0], at, count, scratch), count)};
      absmax = absmax_of(both, 2);
    });
    const uint8_t exponent = e4m3_exponent(absmax);
    const float inverse = e4m3_inverse_scale(exponent);
    auto* codes = args.output<uint8_t>(0);
    for_tiles(rows, row, [&](int64_t at, int64_t count) {
      encode_row(cpu::as_f32(rows.dtype, args.in[0], at, count, scratch), count, inverse, codes + at);
    });
    codes[rows.exponents() + row] = exponent;
  });
}
Kernel decode_cpu(const NodeView& node) {
  const Rows rows(node.out_type(0));
  return for_rows(rows, [rows, max = max_decoded(rows.dtype)](const KernelArgs& args, int64_t row) {
    alignas(64) float scratch[kTile];
    const auto* codes = args.input<uint8_t>(0);
    const float scale = e4m3_scale(codes[rows.exponents() + row]);
    for_tiles(rows, row, [&](int64_t at, int64_t count) {
      float* x = run_to_write(rows.dtype, args.out[0], at, scratch);
      decode_row(codes + at, count, scale, max, x);
      cpu::store_f32(rows.dtype, x, args.out[0], at, count);
    });
  });
}

/// Rounds in f32 as the kernels do, by the dtype conversions of base.
void encode_reference(const ReferenceArgs& args) {
  const Rows rows(args.node.in_type(0));
  for (int64_t row = 0; row < rows.count; ++row) {
    const auto first = args.in[0].begin() + row * rows.columns;
    double absmax = 0;
    for (int64_t c = 0; c < rows.columns; ++c) absmax = std::max(absmax, std::fabs(first[c]));
    int exponent = 0;
    while (absmax > 0 && absmax / std::ldexp(1, exponent) <= 224 && exponent > -126) --exponent;
    while (absmax / std::ldexp(1, exponent) > 448) ++exponent;
    for (int64_t c = 0; c < rows.columns; ++c) {
      const auto scaled = static_cast<float>(first[c] / std::ldexp(1, exponent));
      args.out[0][static_cast<size_t>(row * rows.columns + c)] = f32_to_f8_e4m3(scaled);
    }
    args.out[0][static_cast<size_t>(rows.exponents() + row)] = exponent + 127;
  }
}
void decode_reference(const ReferenceArgs& args) {
  const Rows rows(args.node.out_type(0));
  for (int64_t i = 0; i < rows.exponents(); ++i) {
    const double exponent = args.in[0][static_cast<size_t>(rows.exponents() + i / rows.columns)];
    const auto code = static_cast<uint8_t>(args.in[0][static_cast<size_t>(i)]);
    args.out[0][static_cast<size_t>(i)] =
        exponent == 0 ? 0 : f8_e4m3_to_f32(code) * std::ldexp(1, static_cast<int>(exponent) - 127);
  }
}

std::vector<Sample> encode_samples() {
  return {{.in = {normal({5, 64})}, .attrs = {}, .tolerance = 0},
          {.in = {normal({3, 2056}, DType::bf16)}, .attrs = {}, .tolerance = 0},
          {.in = {normal({2, 3, 3, 40}, DType::f16)}, .attrs = {}, .tolerance = 0},
          {.in = {normal({7, 13})}, .attrs = {}, .tolerance = 0},
          {.in = {filled(SampleInput::Fill::zero, {4, 32}, DType::bf16)}, .attrs = {}, .tolerance = 0}};
}
std::vector<Sample> decode_samples() {
  std::vector<Sample> result;
  const auto add = [&](std::vector<int64_t> axes, DType dtype, int64_t bound) {
    const Rows rows({.dtype = dtype, .shape = Shape(axes)});
    result.push_back({.in = {indices(rows.encoded().shape, bound, DType::u8)},
                      .attrs = {{"dtype", std::string(dtype_name(dtype))}, {"shape", axes}},
                      .tolerance = 0});
  };
  // Codes and exponent bytes below 127: positive values up to 2^-1 * 448.
  add({5, 64}, DType::f32, 127);
  add({3, 2056}, DType::bf16, 127);
  add({2, 3, 3, 40}, DType::f16, 127);
  add({7, 13}, DType::f32, 127);
  return result;
}

}  // namespace

const OpDef encode_fp8{.name = "encode_fp8",
                       .doc =
                           "encodes each row of x as E4M3 codes and an exponent byte of its scale; all codes "
                           "come first",
                       .inputs = {"x"},
                       .infer = infer_encode,
                       .no_vjp_because = kNoGradient,
                       .cpu = encode_cpu,
                       .gpu = true,
                       .reference = encode_reference,
                       .samples = encode_samples};

const OpDef decode_fp8{.name = "decode_fp8",
                       .doc = "decodes the rows of encode_fp8 {shape, dtype}",
                       .inputs = {"codes"},
                       .infer = infer_decode,
                       .no_vjp_because = kNoGradient,
                       .cpu = decode_cpu,
                       .gpu = true,
                       .reference = decode_reference,
                       .samples = decode_samples};

}  // namespace hearth::ops
