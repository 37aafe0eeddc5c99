// Quantization-aware training: weights of linear layers are rounded in each forward pass.
#include <algorithm>

#include "engine/gpu_course.h"
#include "io/gguf.h"
#include "ir/op_def.h"

namespace hearth::engine {
namespace {

class FakeQuantize : public GpuTraining, public testing::WithParamInterface<BlockFormat> {
 protected:
  static EngineOptions wide_text(BlockFormat format, int64_t first_step = 0) {
    const TemporaryFolder folder;
    write_tiny_model(folder.path());
    models::DecoderConfig config = models::read_decoder_config(folder.path() / "config.json");
    config.hidden = 32;
    config.head_size = 16;
    config.intermediate = 64;
    EngineOptions options = text();
    options.objective = tasks::language_model({.config = config, .context = 16});
    options.rounding = format;
    options.first_rounded_step = first_step;
    return options;
  }
};

/// Returns the values that a GGUF file of this format stores for a matrix.
std::vector<float> as_stored(BlockFormat format, std::span<const float> matrix) {
  const io::GgufType type = format == BlockFormat::q4_0 ? io::GgufType::q4_0 : io::GgufType::q8_0;
  std::vector<std::byte> blocks(static_cast<size_t>(io::gguf_row_bytes(type, std::ssize(matrix))));
  io::quantize_blocks(format, matrix, blocks.data());
  std::vector<float> values(matrix.size());
  io::dequantize_gguf(type, blocks.data(), values);
  return values;
}

bool is_linear(const nn::Tensor& tensor) { return tensor.name.find("_proj.weight") != std::string::npos; }

TEST_P(FakeQuantize, ComputesWithTheWeightsThatTheFileStores) {
  Course rounded(wide_text(GetParam())), plain(wide_text(BlockFormat::none));
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
  Course late(wide_text(GetParam(), 3)), plain(wide_text(BlockFormat::none));
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

INSTANTIATE_TEST_SUITE_P(Formats, FakeQuantize, testing::Values(BlockFormat::q4_0, BlockFormat::q8_0),
                         [](const auto& format) { return std::string(name_of(format.param)); });

}  // namespace
}  // namespace hearth::engine
