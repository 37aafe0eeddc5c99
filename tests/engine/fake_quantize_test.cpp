// Quantization-aware training: weights of linear layers are rounded in each forward pass.
#include <algorithm>

#include "base/error.h"
#include "engine/gpu_course.h"
#include "io/gguf.h"
#include "ir/op_def.h"

namespace hearth::engine {
namespace {

class WideText : public GpuTraining {
 protected:
  static EngineOptions wide_text(QatScheme scheme, int64_t first_step = 0) {
    const TemporaryFolder folder;
    write_tiny_model(folder.path());
    models::DecoderConfig config = models::read_decoder_config(folder.path() / "config.json");
    config.hidden = 32;
    config.head_size = 16;
    config.intermediate = 64;
    EngineOptions options = text();
    options.objective = tasks::language_model({.config = config, .context = 16});
    options.rounding = {.scheme = scheme, .first_step = first_step};
    return options;
  }
};
class FakeQuantize : public WideText, public testing::WithParamInterface<QatScheme> {};

/// Returns the values that a GGUF file of this format stores for a matrix.
std::vector<float> as_stored(QatScheme scheme, std::span<const float> matrix) {
  const BlockFormat format = formats_of(scheme).blocks;
  const io::GgufType type = format == BlockFormat::q4_0 ? io::GgufType::q4_0 : io::GgufType::q8_0;
  std::vector<std::byte> blocks(static_cast<size_t>(io::gguf_row_bytes(type, std::ssize(matrix))));
  io::quantize_blocks(format, matrix, blocks.data());
  std::vector<float> values(matrix.size());
  io::dequantize_gguf(type, blocks.data(), values);
  return values;
}

bool is_linear(const nn::Tensor& tensor) { return tensor.name.find("_proj.weight") != std::string::npos; }

TEST_P(FakeQuantize, ComputesWithTheWeightsThatTheFileStores) {
  Course rounded(wide_text(GetParam())), plain(wide_text(QatScheme::none));
  rounded.state_after(3);
  for (const nn::Tensor& tensor : rounded.engine().plan().tensors) {
    const std::span<const float> trained = values(rounded.engine(), tensor.name);
    const std::span<float> copy = values(plain.engine(), tensor.name);
    std::ranges::copy(
        is_linear(tensor) ? as_stored(GetParam(), trained) : std::vector(trained.begin(), trained.end()),
        copy.begin());
  }
  const double want = plain.engine().evaluate(rounded.batch());
  EXPECT_EQ(rounded.engine().evaluate(rounded.batch()), want);
  std::ranges::copy(values(rounded.engine(), "model.layers.0.mlp.up_proj.weight"),
                    values(plain.engine(), "model.layers.0.mlp.up_proj.weight").begin());
  EXPECT_NE(plain.engine().evaluate(rounded.batch()), want);
}

TEST_P(FakeQuantize, BeginsAfterTheGivenNumberOfUpdates) {
  Course late(wide_text(GetParam(), 3)), plain(wide_text(QatScheme::none));
  for (int64_t step = 0; step < 3; ++step) EXPECT_EQ(late.step().loss, plain.step().loss) << step;
  EXPECT_NE(late.step().loss, plain.step().loss);
}

TEST_P(FakeQuantize, TrainsOnAnEmulatedGpuAsOnTheCpu) {
  Course gpu(on_gpu(wide_text(GetParam(), 2))), cpu(wide_text(GetParam(), 2));
  for (int64_t step = 0; step < 4; ++step) {
    const double want = cpu.step().loss;
    EXPECT_NEAR(gpu.step().loss, want, 1e-4 * want) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, FakeQuantize, testing::Values(QatScheme::q4_0, QatScheme::q8_0),
                         [](const auto& format) { return std::string(name_of(format.param)); });

/// Schemes that round groups of weights or rows of inputs.
class RoundedGroups : public WideText {
 protected:
  static EngineOptions wide(QatScheme scheme, int64_t first_step = 0) {
    EngineOptions options = wide_text(scheme, first_step);
    if (has_group(scheme)) options.rounding.group = 16;
    return options;
  }
};
class FakeQuantizeGroups : public RoundedGroups, public testing::WithParamInterface<QatScheme> {};

std::vector<float> in_groups(GroupFormat format, size_t group, std::span<const float> matrix) {
  std::vector<float> values;
  for (size_t at = 0; at < matrix.size(); at += group) {
    const auto part = matrix.subspan(at, group);
    const auto [min, max] = std::ranges::minmax(part);
    const GroupScale scale = group_scale(format, min, max);
    for (const float value : part) values.push_back(group_value(group_code(format, value, scale), scale));
  }
  return values;
}

TEST_P(FakeQuantizeGroups, BeginsAfterTheGivenNumberOfUpdates) {
  Course late(wide(GetParam(), 2)), plain(wide(QatScheme::none));
  for (int64_t step = 0; step < 2; ++step) EXPECT_EQ(late.step().loss, plain.step().loss) << step;
  EXPECT_NE(late.step().loss, plain.step().loss);
}

TEST_P(FakeQuantizeGroups, TrainsOnAnEmulatedGpuAsOnTheCpu) {
  Course gpu(on_gpu(wide(GetParam(), 1))), cpu(wide(GetParam(), 1));
  for (int64_t step = 0; step < 3; ++step) {
    const double want = cpu.step().loss;
    // An input that differs in its last bit may get another code.
    EXPECT_NEAR(gpu.step().loss, want, 3e-3 * want) << step;
  }
}

/// torchao and torchtune: the frozen weight is rounded, and the adapter is added to its output.
TEST_P(FakeQuantizeGroups, RoundsTheFrozenWeightsBelowAnAdapter) {
  EngineOptions adapted = wide(GetParam());
  adapted.adapter = {.rank = 2, .scale = 1};
  Course lora(adapted), whole(wide(GetParam()));
  for (const nn::Tensor& tensor : whole.engine().plan().tensors)
    std::ranges::copy(values(whole.engine(), tensor.name), values(lora.engine(), tensor.name).begin());
  EXPECT_EQ(lora.engine().evaluate(whole.batch()), whole.engine().evaluate(whole.batch()));
  lora.state_after(3);
  EXPECT_NE(lora.engine().evaluate(whole.batch()), whole.engine().evaluate(whole.batch()));
}

INSTANTIATE_TEST_SUITE_P(Schemes, FakeQuantizeGroups,
                         testing::Values(QatScheme::int4, QatScheme::int8_int4, QatScheme::w8a8,
                                         QatScheme::fp8),
                         [](const auto& scheme) { return "_" + std::string(name_of(scheme.param)); });

TEST_F(RoundedGroups, Int4ComputesWithRoundedWeights) {
  Course rounded(wide(QatScheme::int4)), plain(wide(QatScheme::none));
  rounded.state_after(3);
  for (const nn::Tensor& tensor : rounded.engine().plan().tensors) {
    const std::span<const float> trained = values(rounded.engine(), tensor.name);
    std::ranges::copy(is_linear(tensor) ? in_groups(GroupFormat::int4, 16, trained)
                                        : std::vector(trained.begin(), trained.end()),
                      values(plain.engine(), tensor.name).begin());
  }
  EXPECT_EQ(rounded.engine().evaluate(rounded.batch()), plain.engine().evaluate(rounded.batch()));
}

TEST_F(RoundedGroups, ASchemeThatRoundsNoLayerIsRefused) {
  EngineOptions options = wide(QatScheme::int4);
  options.rounding.group = 24;
  EXPECT_THROW(Course{options}, UserError);
}

}  // namespace
}  // namespace hearth::engine
