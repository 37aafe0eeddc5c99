#include "ops/matmul/round_e4m3.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "base/e4m3.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

/// Max number of elements of a line, the part of a row that is converted to f32 at a time.
constexpr int64_t kLine = 128;

Inferred infer(const NodeView& node) {
  const Type& x = node.in_type(0);
  const ScaleBlock block = scale_block(node.attrs);
  if (x.shape.rank() != 2 || (x.dtype != DType::f32 && x.dtype != DType::bf16))
    return refuse_type("x", "f32 or bf16 of rank 2", x);
  const bool is_known =
      block.rows == 1 || (block.rows == 0 && block.columns <= 1) || (block.rows > 1 && block.columns > 1);
  if (std::min(block.rows, block.columns) < 0 || !is_known)
    return refuse(fmt::format("there are no scale blocks of {} x {}", block.rows, block.columns));
  return same_as_first(node);
}

/// Bits of |x|. Their maximum is the largest magnitude; not finite if an element is not.
uint32_t magnitude_bits(float x) { return e4m3::bits_as<uint32_t>(x) & 0x7FFFFFFFU; }

HEARTH_CLONES uint32_t largest_of(const float* line, int64_t count, uint32_t largest) {
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, magnitude_bits(line[i]));
  return largest;
}
HEARTH_CLONES void update_largest(const float* line, int64_t count, uint32_t* largest) {
  for (int64_t i = 0; i < count; ++i) largest[i] = std::max(largest[i], magnitude_bits(line[i]));
}
HEARTH_CLONES void round_line(float* line, int64_t count, const float* inverse, const float* scale) {
  for (int64_t i = 0; i < count; ++i) line[i] = round_to_e4m3(line[i], inverse[i], scale[i]);
}

/// Scales of the elements of a line.
struct Scales {
  float inverse[kLine], scale[kLine];

  explicit Scales(uint32_t largest) {
    set(0, largest);
    std::fill_n(inverse, kLine, inverse[0]);
    std::fill_n(scale, kLine, scale[0]);
  }
  explicit Scales(const uint32_t* largest) {
    for (int64_t i = 0; i < kLine; ++i) set(i, largest[i]);
  }
  void set(int64_t i, uint32_t largest) {
    const uint8_t exponent = e4m3_exponent(e4m3::bits_as<float>(largest));
    inverse[i] = e4m3_inverse_scale(exponent);
    scale[i] = e4m3_scale(exponent);
  }
};

/// A part of a matrix.
struct Tile {
  const Type& type;
  Range rows, columns;

  /// Calls body(line, index of its first element, count) with each line of `data` in f32.
  template <typename Body>
  void for_each_line(const void* data, Body body) const {
    float line[kLine];
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (int64_t column = columns.begin; column < columns.end; column += kLine) {
        const int64_t at = row * type.shape[1] + column, count = std::min(kLine, columns.end - column);
        cpu::load_f32(type.dtype, data, at, count, line);
        body(line, at, count);
      }
    }
  }
  uint32_t largest(const void* data) const {
    uint32_t result = 0;
    for_each_line(
        data, [&](const float* line, int64_t, int64_t count) { result = largest_of(line, count, result); });
    return result;
  }
  void round(const void* x, void* y, const Scales& scales) const {
    for_each_line(x, [&](float* line, int64_t at, int64_t count) {
      round_line(line, count, scales.inverse, scales.scale);
      cpu::store_f32(type.dtype, line, y, at, count);
    });
  }
  /// Rounds a tile of at most kLine columns with a scale for each.
  void round_columns(const void* x, void* y) const {
    uint32_t of_column[kLine] = {};
    for_each_line(x,
                  [&](const float* line, int64_t, int64_t count) { update_largest(line, count, of_column); });
    round(x, y, Scales(of_column));
  }
};

Kernel tensor_kernel(const Type& type, int num_parts) {
  const auto tile = [=](int part) {
    return Tile{type, split_range(type.shape[0], num_parts, part), {0, type.shape[1]}};
  };
  const auto run = [=](const KernelArgs& args) {
    auto* const largest = reinterpret_cast<uint32_t*>(args.workspace);
    args.threads->for_parts(num_parts, [&](int part) { largest[part] = tile(part).largest(args.in[0]); });
    const Scales all(*std::max_element(largest, largest + num_parts));
    args.threads->for_parts(num_parts, [&](int part) { tile(part).round(args.in[0], args.out[0], all); });
  };
  return {.run = run, .workspace_bytes = num_parts * int64_t{sizeof(uint32_t)}};
}

Kernel kernel(const NodeView& node) {
  const Type& type = node.in_type(0);
  const ScaleBlock block = scale_block(node.attrs);
  if (block.rows == 0 && block.columns == 0) return tensor_kernel(type, node.num_threads);
  const int64_t num_rows = type.shape[0], num_columns = type.shape[1];
  const bool per_column = block.columns == 1;
  const int64_t rows = block.rows == 0 ? num_rows : block.rows;
  const int64_t columns = block.columns == 0 ? num_columns : per_column ? kLine : block.columns;
  const int64_t per_row = (num_columns + columns - 1) / columns;
  const int64_t num_tiles = (num_rows + rows - 1) / rows * per_row;
  const int64_t grain = std::max<int64_t>(1, kGrain / (rows * columns));
  const auto run = [=](const KernelArgs& args) {
    args.threads->parallel_for(num_tiles, grain, [&](Range tiles) {
      for (int64_t i = tiles.begin; i < tiles.end; ++i) {
        const int64_t row = i / per_row * rows, column = i % per_row * columns;
        const Tile tile{
            type, {row, std::min(row + rows, num_rows)}, {column, std::min(column + columns, num_columns)}};
        if (per_column) {
          tile.round_columns(args.in[0], args.out[0]);
        } else {
          tile.round(args.in[0], args.out[0], Scales(tile.largest(args.in[0])));
        }
      }
    });
  };
  return {.run = run};
}

void reference(const ReferenceArgs& args) {
  const Shape& shape = args.node.in_type(0).shape;
  const ScaleBlock block = scale_block(args.node.attrs);
  const int64_t rows = block.rows == 0 ? shape[0] : block.rows;
  const int64_t columns = block.columns == 0 ? shape[1] : block.columns;
  const int64_t per_row = shape[1] / columns + 1;
  std::vector<double> largest(static_cast<size_t>((shape[0] / rows + 1) * per_row));
  const auto block_of = [&](size_t i) {
    const auto at = static_cast<int64_t>(i);
    return static_cast<size_t>(at / shape[1] / rows * per_row + at % shape[1] / columns);
  };
  const std::vector<double>& x = args.in[0];
  for (size_t i = 0; i < x.size(); ++i)
    largest[block_of(i)] = std::max(largest[block_of(i)], std::fabs(x[i]));
  for (size_t i = 0; i < x.size(); ++i) {
    const double absmax = largest[block_of(i)];
    const double scale = absmax > 0 ? std::exp2(std::max(-126.0, std::ceil(std::log2(absmax / 448)))) : 1;
    const auto code = f32_to_f8_e4m3(static_cast<float>(x[i] / scale));
    args.out[0][i] = static_cast<double>(f8_e4m3_to_f32(code)) * scale;
  }
}

std::vector<Sample> samples() {
  std::vector<Sample> result;
  const auto add = [&](const SampleInput& x, const ScaleBlock& block) {
    result.push_back(
        {.in = {x}, .attrs = {{"block_rows", block.rows}, {"block_columns", block.columns}}, .tolerance = 0});
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const ScaleBlock& block : {ScaleBlock{1, 0}, {0, 1}, {0, 0}, {1, 128}, {128, 128}}) {
      add(normal({5, 7}, dtype), block);
      add(normal({150, 264}, dtype), block);
    }
  }
  add(filled(SampleInput::Fill::zero, {3, 40}, DType::f32), {1, 0});
  return result;
}

}  // namespace

ScaleBlock scale_block(const ir::Attrs& attrs) {
  return {.rows = attrs.integer("block_rows"), .columns = attrs.integer("block_columns")};
}

const OpDef round_e4m3{
    .name = "round_e4m3",
    .doc =
        "round_e4m3(x [R, C]){block_rows, block_columns}: x rounded to E4M3 values times a power of two for "
        "each block (0: all rows, all columns)",
    .inputs = {"x"},
    .infer = infer,
    .no_vjp_because = "it is inserted after the backward pass",
    .cpu = kernel,
    .gpu = true,
    .reference = reference,
    .cost = [](const NodeView& node) { return cost_per_element(node, 8); },
    .samples = samples};

}  // namespace hearth::ops
