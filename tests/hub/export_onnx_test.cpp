#include "hub/export_onnx.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "io/safetensors.h"
#include "temporary_folder.h"

namespace hearth::hub {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Grow = std::function<ir::ValueId(nn::Builder&, ir::ValueId)>;

class Grown : public engine::Objective {
 public:
  explicit Grown(Grow grow) : grow_(std::move(grow)) {}
  Graph build(nn::Builder& builder, engine::BatchShape shape) const override {
    const ir::ValueId images =
        builder.input("images", {.dtype = DType::f32, .shape = {shape.num_rows, 4, 6, 2}});
    Graph made{.inputs = {images}};
    if (grow_) made.exported = {{"out", grow_(builder, images)}};
    return made;
  }

 private:
  Grow grow_;
};

class ExportOnnx : public testing::Test {
 protected:
  ExportOnnx() {
    const std::vector<float> values(2, 1.0F);
    io::write_safetensors(weights_, {{.name = "conv.weight",
                                      .dtype = DType::f32,
                                      .shape = {1, 2, 1, 1},
                                      .bytes = std::as_bytes(std::span(values))}});
  }
  /// What is said of it; nothing is left behind.
  std::string refusal(const Grow& grow) const {
    const fs::path out = folder_.path() / "out.onnx";
    try {
      export_onnx(Grown(grow), weights_, {.out = out, .name = "grown", .metadata = {}});
    } catch (const UserError& error) {
      EXPECT_EQ(list_folder(folder_.path()).size(), 1U);
      return error.what();
    }
    return fmt::format("{} bytes", fs::file_size(out));
  }

  TemporaryFolder folder_;
  fs::path weights_ = folder_.path() / "weights.safetensors";
};

TEST_F(ExportOnnx, NamesAnOperationWithoutCounterpart) {
  EXPECT_THAT(refusal([](nn::Builder& builder, ir::ValueId in) { return builder.op("tanh", {in}); }),
              AllOf(HasSubstr("the op tanh"), HasSubstr("ONNX")));
}

TEST_F(ExportOnnx, RefusesAReshapeOfTheBatch) {
  EXPECT_THAT(refusal([](nn::Builder& builder, ir::ValueId in) {
                return builder.op("reshape", {builder.relu(in)}, {{"shape", std::vector<int64_t>{24, 2}}});
              }),
              HasSubstr("a reshape that changes the batch axis"));
}

TEST_F(ExportOnnx, RefusesAnObjectiveThatExportsNothing) {
  EXPECT_THAT(refusal({}), AllOf(HasSubstr("grown cannot be exported to ONNX"), HasSubstr("--format hf")));
}

TEST_F(ExportOnnx, RefusesWeightsOfAnotherModel) {
  const auto conv = [](const char* name, int64_t channels) {
    return [=](nn::Builder& builder, ir::ValueId in) {
      return builder.conv(name, in, {.out_channels = channels, .kernel = 1, .padding = 0});
    };
  };
  EXPECT_THAT(refusal(conv("conv", 3)),
              HasSubstr("'conv.weight' with shape [3, 2, 1, 1], found shape [1, 2, 1, 1]"));
  EXPECT_THAT(refusal(conv("other", 1)),
              HasSubstr("'other.weight' with shape [1, 2, 1, 1], which is missing"));
  EXPECT_THAT(refusal(conv("conv", 1)), HasSubstr(" bytes"));
}

}  // namespace
}  // namespace hearth::hub
