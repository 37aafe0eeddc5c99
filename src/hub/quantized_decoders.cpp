// Layouts of quantized matrices in checkpoints. A value is (code - zero) * scale: for codes of up to 8 bits
// and scales in f16 or bf16 the product is exact in f32.
#include "hub/quantized_decoders.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"

namespace hearth::hub {
namespace {

using io::TensorView;

float element(const TensorView& view, int64_t index) {
  return static_cast<float>(load_element(view.dtype, view.bytes.data(), index));
}

/// Returns code `index` of a sequence of codes of `bits` bits, packed into 32-bit words without gaps, lowest
/// bits first. `first`: index of the first word; `stride`: distance of consecutive words.
uint32_t code_at(const TensorView& words, int bits, int64_t first, int64_t stride, int64_t index) {
  const auto word = [&](int64_t number) {
    uint32_t value;
    std::memcpy(&value, words.bytes.data() + (first + number * stride) * 4, sizeof value);
    return value;
  };
  const int64_t bit = index * bits, number = bit / 32;
  const auto shift = static_cast<int>(bit % 32);
  uint32_t value = word(number) >> shift;
  if (shift + bits > 32) value |= word(number + 1) << (32 - shift);
  return value & ((1U << bits) - 1);
}

/// Layout of byte_decoder(): one byte per code.
struct ByteLayout {
  QuantizedModule parts;
  std::array<float, 256> values{};
  int64_t block_rows = 1, num_groups = 1;

  float code(int64_t row, int64_t column) const {
    return values[static_cast<uint8_t>(
        parts.codes->bytes[static_cast<size_t>(row * parts.columns + column)])];
  }
  int64_t scale_index(int64_t row, int64_t group) const { return row / block_rows * num_groups + group; }
  float scale(int64_t row, int64_t group) const { return element(*parts.scales, scale_index(row, group)); }
  float zero(int64_t row, int64_t group) const {
    return !parts.zeros ? 0 : element(*parts.zeros, scale_index(row, group));
  }
};

/// Layout of packed_decoder().
struct PackedLayout {
  QuantizedModule parts;
  int64_t num_groups = 1;

  int half() const { return 1 << (parts.bits - 1); }
  int64_t words_of(int64_t count) const { return (count * parts.bits + 31) / 32; }
  float code(int64_t row, int64_t column) const {
    const int64_t first = row * words_of(parts.columns);
    return static_cast<float>(static_cast<int>(code_at(*parts.codes, parts.bits, first, 1, column)) - half());
  }
  float scale(int64_t row, int64_t group) const { return element(*parts.scales, row * num_groups + group); }
  float zero(int64_t row, int64_t group) const {
    if (!parts.zeros) return 0;
    if (parts.zeros->dtype != DType::i32) return element(*parts.zeros, row * num_groups + group);
    return static_cast<float>(static_cast<int>(code_at(*parts.zeros, parts.bits, group, num_groups, row)) -
                              half());
  }
};

/// Layout of gptq_decoder().
struct GptqLayout {
  QuantizedModule parts;
  int added_zero = 1;

  float code(int64_t row, int64_t column) const {
    return static_cast<float>(code_at(*parts.codes, parts.bits, row, parts.rows, column));
  }
  float scale(int64_t row, int64_t group) const { return element(*parts.scales, group * parts.rows + row); }
  float zero(int64_t row, int64_t group) const {
    const int64_t first = group * (parts.rows * parts.bits / 32);
    const auto stored = static_cast<int>(code_at(*parts.zeros, parts.bits, first, 1, row));
    return static_cast<float>((stored + added_zero) & ((1 << parts.bits) - 1));
  }
};

/// Layout of awq_decoder().
struct AwqLayout {
  /// Position in a word of each of 8 adjacent rows.
  static constexpr std::array<int64_t, 8> kPositions = {0, 4, 1, 5, 2, 6, 3, 7};
  QuantizedModule parts;

  float read(const TensorView& words, int64_t line, int64_t row) const {
    const int64_t index = row / 8 * 8 + kPositions[static_cast<size_t>(row % 8)];
    return static_cast<float>(code_at(words, 4, line * (parts.rows / 8), 1, index));
  }
  float code(int64_t row, int64_t column) const { return read(*parts.codes, column, row); }
  float scale(int64_t row, int64_t group) const { return element(*parts.scales, group * parts.rows + row); }
  float zero(int64_t row, int64_t group) const { return read(*parts.zeros, group, row); }
};

/// Decoder of a matrix whose columns are in groups with a scale and a zero point per row.
template <typename Layout>
class GroupedDecoder final : public io::TensorDecoder {
 public:
  /// `groups`: group of each column; empty: groups of `group_size` columns.
  GroupedDecoder(Layout layout, int64_t num_groups, int64_t group_size, std::vector<int32_t> groups,
                 float factor)
      : layout_(std::move(layout)),
        num_groups_(num_groups),
        group_size_(group_size),
        groups_(std::move(groups)),
        factor_(factor) {}

  void decode(const TensorView&, int64_t from, std::span<float> values) const override {
    const int64_t columns = layout_.parts.columns;
    std::vector<float> scales(static_cast<size_t>(num_groups_)), zeros(scales.size());
    while (!values.empty()) {
      const int64_t row = from / columns, first = from % columns;
      const int64_t count = std::min(std::ssize(values), columns - first);
      for (int64_t group = 0; group < num_groups_; ++group) {
        scales[static_cast<size_t>(group)] = layout_.scale(row, group);
        zeros[static_cast<size_t>(group)] = layout_.zero(row, group);
      }
      for (int64_t i = 0; i < count; ++i) {
        const int64_t column = first + i;
        const auto group = groups_.empty() ? static_cast<size_t>(column / group_size_)
                                           : static_cast<size_t>(groups_[static_cast<size_t>(column)]);
        values[static_cast<size_t>(i)] = (layout_.code(row, column) - zeros[group]) * scales[group] * factor_;
      }
      values = values.subspan(static_cast<size_t>(count));
      from += count;
    }
  }

 private:
  Layout layout_;
  int64_t num_groups_, group_size_;
  std::vector<int32_t> groups_;
  float factor_;
};

[[noreturn]] void refuse(const QuantizedModule& module, std::string_view part,
                         const std::optional<TensorView>& found, const std::string& wanted) {
  user_error("{}: expected its {} to be {}, found {}; download the model again", module.where, part, wanted,
             !found ? "none" : to_string(found->shape));
}

void expect_shape(const QuantizedModule& module, std::string_view part,
                  const std::optional<TensorView>& found, const Shape& wanted, DType dtype) {
  if (!found || found->shape != wanted || found->dtype != dtype)
    refuse(module, part, found, fmt::format("{} in {}", to_string(wanted), dtype_name(dtype)));
}

void expect_scales(const QuantizedModule& module) {
  if (!module.scales || !is_floating(module.scales->dtype) || module.scales->shape.num_elements() < 1)
    refuse(module, "scales", module.scales, "floating-point numbers");
}

/// Throws a UserError unless codes have 1 to 8 bits and `length` codes fill complete 32-bit words.
void expect_bits(const QuantizedModule& module, int64_t length) {
  if (module.bits < 1 || module.bits > 8 || length * module.bits % 32 != 0)
    user_error("{}: {} elements of {} bits are not supported", module.where, length, module.bits);
}

/// Returns `count`. Throws a UserError if it is not a valid number of groups of the columns.
int64_t check_groups(const QuantizedModule& module, int64_t count) {
  if (count < 1 || (!module.groups && module.columns % count != 0))
    user_error("{}: {} groups do not divide {} columns; download the model again", module.where, count,
               module.columns);
  return count;
}

std::vector<int32_t> groups_of(const QuantizedModule& module, int64_t num_groups) {
  if (!module.groups) return {};
  expect_shape(module, "group indices", module.groups, {module.columns}, DType::i32);
  std::vector<int32_t> groups(static_cast<size_t>(module.columns));
  std::memcpy(groups.data(), module.groups->bytes.data(), groups.size() * 4);
  for (const int32_t group : groups) {
    if (group < 0 || group >= num_groups)
      user_error("{}: a group index is {}, but there are {} groups; download the model again", module.where,
                 group, num_groups);
  }
  return groups;
}

template <typename Layout>
std::shared_ptr<const io::TensorDecoder> make(Layout layout, int64_t num_groups, float factor = 1) {
  std::vector<int32_t> groups = groups_of(layout.parts, num_groups);
  const int64_t group_size = std::max<int64_t>(layout.parts.columns / num_groups, 1);
  return std::make_shared<GroupedDecoder<Layout>>(std::move(layout), num_groups, group_size,
                                                  std::move(groups), factor);
}

std::array<float, 256> values_of_bytes(DType dtype) {
  std::array<float, 256> values{};
  for (int i = 0; i < 256; ++i) {
    const auto bits = static_cast<uint8_t>(i);
    values[static_cast<size_t>(i)] = dtype == DType::f8_e4m3 ? f8_e4m3_to_f32(bits)
                                     : dtype == DType::f8_e5m2
                                         ? f8_e5m2_to_f32(bits)
                                         : static_cast<float>(static_cast<int8_t>(bits));
  }
  return values;
}

}  // namespace

std::shared_ptr<const io::TensorDecoder> byte_decoder(const QuantizedModule& module, float factor) {
  expect_scales(module);
  ByteLayout layout{.parts = module, .values = values_of_bytes(module.codes->dtype)};
  const Shape& scales = module.scales->shape;
  const int64_t num_rows = scales.rank() == 0 ? 1 : scales[0];
  layout.num_groups = scales.rank() < 2 ? 1 : scales[1];
  const auto num_blocks = [](int64_t length, int64_t block) { return (length + block - 1) / block; };
  int64_t block = module.columns / std::max<int64_t>(layout.num_groups, 1);
  if (module.block_rows > 0 && num_rows == num_blocks(module.rows, module.block_rows) &&
      layout.num_groups == num_blocks(module.columns, module.block_columns)) {
    layout.block_rows = module.block_rows;
    block = module.block_columns;
  } else if (scales.num_elements() == 1 && scales.rank() < 3) {
    layout.block_rows = module.rows;
  } else if (scales.rank() > 2 || num_rows != module.rows || block * layout.num_groups != module.columns) {
    refuse(module, "scales", module.scales, "one per tensor, row, group of columns, or block of the config");
  }
  if (module.zeros && module.zeros->shape != scales)
    refuse(module, "zero points", module.zeros, to_string(scales));
  return std::make_shared<GroupedDecoder<ByteLayout>>(layout, layout.num_groups, block,
                                                      groups_of(module, layout.num_groups), factor);
}

std::shared_ptr<const io::TensorDecoder> packed_decoder(const QuantizedModule& module) {
  expect_scales(module);
  const PackedLayout sizes{.parts = module};
  expect_bits(module, 32);
  expect_shape(module, "packed weights", module.codes, {module.rows, sizes.words_of(module.columns)},
               DType::i32);
  const Shape& scales = module.scales->shape;
  if (scales.rank() != 2 || scales[0] != module.rows)
    refuse(module, "scales", module.scales, fmt::format("[{}, groups]", module.rows));
  const int64_t num_groups = check_groups(module, scales[1]);
  if (module.zeros && module.zeros->dtype == DType::i32) {
    expect_shape(module, "zero points", module.zeros, {sizes.words_of(module.rows), num_groups}, DType::i32);
  } else if (module.zeros) {
    expect_shape(module, "zero points", module.zeros, scales, DType::i8);
  }
  return make(PackedLayout{.parts = module, .num_groups = num_groups}, num_groups);
}

std::shared_ptr<const io::TensorDecoder> gptq_decoder(const QuantizedModule& module, int added_zero) {
  expect_scales(module);
  expect_bits(module, module.columns);
  expect_bits(module, module.rows);
  expect_shape(module, "qweight", module.codes, {module.columns * module.bits / 32, module.rows}, DType::i32);
  const Shape& scales = module.scales->shape;
  if (scales.rank() != 2 || scales[1] != module.rows)
    refuse(module, "scales", module.scales, fmt::format("[groups, {}]", module.rows));
  const int64_t num_groups = check_groups(module, scales[0]);
  expect_shape(module, "qzeros", module.zeros, {num_groups, module.rows * module.bits / 32}, DType::i32);
  return make(GptqLayout{.parts = module, .added_zero = added_zero}, num_groups);
}

std::shared_ptr<const io::TensorDecoder> awq_decoder(const QuantizedModule& module) {
  expect_scales(module);
  expect_bits(module, module.rows);
  expect_shape(module, "qweight", module.codes, {module.columns, module.rows / 8}, DType::i32);
  const Shape& scales = module.scales->shape;
  if (scales.rank() != 2 || scales[1] != module.rows)
    refuse(module, "scales", module.scales, fmt::format("[groups, {}]", module.rows));
  const int64_t num_groups = check_groups(module, scales[0]);
  expect_shape(module, "qzeros", module.zeros, {num_groups, module.rows / 8}, DType::i32);
  return make(AwqLayout{.parts = module}, num_groups);
}

}  // namespace hearth::hub
