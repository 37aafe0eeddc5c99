// ONNX files as hearth export writes them, read again by the format's own numbers.
#include <map>
#include <set>
#include <span>

#include "base/protobuf.h"
#include "cli/program.h"

namespace hearth {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<ProtobufField> fields_of(std::string_view message) {
  std::vector<ProtobufField> fields;
  ProtobufReader reader(message, "ONNX", "malformed");
  while (const auto field = reader.next()) fields.push_back(*field);
  return fields;
}

std::vector<std::string> texts_of(std::string_view message, uint64_t number) {
  std::vector<std::string> texts;
  for (const ProtobufField& field : fields_of(message))
    if (field.number == number) texts.emplace_back(field.bytes);
  return texts;
}

/// What is read of a ModelProto.
struct Onnx {
  std::vector<std::string> inputs, outputs;
  std::map<std::string, std::string> metadata;
  size_t num_nodes = 0;
  std::map<std::string, size_t> num_nodes_of;  ///< by operation
};

uint64_t num_elements(std::string_view tensor) {
  uint64_t count = 1;
  for (const ProtobufField& field : fields_of(tensor))
    if (field.number == 1) count *= field.value;
  return count;
}

/// A graph whose nodes read only what was made before them.
Onnx read_graph(std::string_view graph) {
  Onnx onnx;
  std::set<std::string> made;
  for (const ProtobufField& field : fields_of(graph)) {
    if (field.number == 5) {
      const std::string name = texts_of(field.bytes, 8).at(0);
      const size_t bytes = texts_of(field.bytes, 9).at(0).size();
      const size_t each = bytes / std::max<uint64_t>(1, num_elements(field.bytes));
      EXPECT_TRUE(each == 1 || each == 4 || each == 8) << name << ": " << bytes << " bytes";
      EXPECT_TRUE(made.insert(name).second) << name;
    }
    if (field.number == 11) onnx.inputs.push_back(texts_of(field.bytes, 1).at(0));
    if (field.number == 12) onnx.outputs.push_back(texts_of(field.bytes, 1).at(0));
  }
  made.insert(onnx.inputs.begin(), onnx.inputs.end());
  for (const ProtobufField& node : fields_of(graph)) {
    if (node.number != 1) continue;
    ++onnx.num_nodes;
    ++onnx.num_nodes_of[texts_of(node.bytes, 4).at(0)];
    for (const std::string& name : texts_of(node.bytes, 1))
      EXPECT_TRUE(name.empty() || made.contains(name)) << name;
    for (const std::string& name : texts_of(node.bytes, 2)) EXPECT_TRUE(made.insert(name).second) << name;
  }
  for (const std::string& name : onnx.outputs) EXPECT_TRUE(made.contains(name)) << name;
  return onnx;
}

Onnx read_onnx(std::string_view file) {
  Onnx onnx;
  std::map<std::string, std::string> metadata;
  uint64_t opset = 0;
  for (const ProtobufField& field : fields_of(file)) {
    if (field.number == 7) onnx = read_graph(field.bytes);
    if (field.number == 8)
      for (const ProtobufField& part : fields_of(field.bytes)) opset = part.number == 2 ? part.value : opset;
    if (field.number == 14) metadata[texts_of(field.bytes, 1).at(0)] = texts_of(field.bytes, 2).at(0);
  }
  EXPECT_EQ(opset, 17U);
  onnx.metadata = metadata;
  return onnx;
}

class OnnxFile : public Program {
 protected:
  /// A run of two updates on shapes.
  std::string train(const std::string& keys) const {
    return "hearth train tiny.yaml train.steps=2 data.count=8 data.val_count=2 train.batch=2 " + keys;
  }
  Onnx exported(const std::string& run, const std::string& flags = "") const {
    EXPECT_THAT(works(fmt::format("hearth export {} --format onnx --out {}.onnx {}", run, run, flags)),
                AllOf(HasSubstr(run + ".onnx: ONNX of "), HasSubstr("input 'images' [N, 3, ")));
    return read_onnx(get(run + ".onnx"));
  }
};

TEST_F(OnnxFile, AModelOfEachTaskCanBeRead) {
  works(train("model.name=smallcnn data.image_size=16 --out classify"));
  works(train("model.name=unet model.num_classes=11 model.width=4 data.image_size=16 --out segment"));
  works(train("model.name=yolox_pico data.image_size=32 --out detect"));
  for (const char* task : {"classify", "segment", "detect"}) {
    const Onnx onnx = exported(task);
    EXPECT_THAT(onnx.inputs, ElementsAre("images")) << task;
    EXPECT_THAT(onnx.outputs, ElementsAre(task == std::string("detect") ? "detections" : "logits")) << task;
    EXPECT_GT(onnx.num_nodes, 5U) << task;
    EXPECT_EQ(onnx.metadata.at("task"), task);
    EXPECT_THAT(onnx.metadata.at("names"), HasSubstr("\"circle\"")) << task;
    EXPECT_TRUE(onnx.metadata.contains("mean") && onnx.metadata.contains("std")) << task;
  }
}

TEST_F(OnnxFile, AnInt8ModelHasAboutAQuarterOfTheBytes) {
  works(train("model.name=smallcnn data.image_size=16 --out run"));
  const Onnx exact = exported("run");
  const uintmax_t exact_bytes = fs::file_size(at("run.onnx"));
  for (const char* ranges : {"mse", "minmax"}) {
    const Onnx onnx = exported("run", fmt::format("--type int8 --calibration-images 1 --ranges {}", ranges));
    EXPECT_LT(fs::file_size(at("run.onnx")), 3 * exact_bytes / 10);
    EXPECT_EQ(onnx.num_nodes_of.at("Conv"), exact.num_nodes_of.at("Conv"));
    EXPECT_GE(onnx.num_nodes_of.at("QuantizeLinear"), onnx.num_nodes_of.at("Conv"));
    EXPECT_GT(onnx.num_nodes_of.at("DequantizeLinear"), 2 * onnx.num_nodes_of.at("Conv"));
  }
}

TEST_F(OnnxFile, FlagsOfInt8AreRefusedWhereTheyMeanNothing) {
  works(train("--out run"));
  refused("hearth export run --out run.onnx --data images", {"--data", "--type int8", "not set"});
  refused("hearth export run --out run.onnx --type f32 --ranges mse", {"--ranges", "--type is f32"});
  refused("hearth export run --type int8 --out folder", {"--type int8 is for ONNX", "--out NAME.onnx"});
  refused("hearth export run --type int8 --out run.onnx --data missing", {"missing"});
  refused("hearth export run --type int8 --out run.onnx --calibration-images 0", {"--calibration-images"});
  EXPECT_FALSE(has("run.onnx"));
}

TEST_F(OnnxFile, ADetectorWithoutCounterpartIsRefusedAndNothingIsLeft) {
  works(train("model.name=fcos_resnet50_fpn model.width=8 data.image_size=64 --out run"));
  refused("hearth export run --format onnx --out run.onnx",
          {"fcos_resnet50_fpn cannot be exported to ONNX", "YOLOX", "--format hf"});
  refused("hearth export run --format onnx --type bf16 --out run.onnx", {"--type f32 or int8", "bf16"});
  refused("hearth export run --format onnx --out run.pt", {"--out NAME.onnx", "'run.pt'"});
  refused("hearth export run --out h.pt", {"'h.pt'", "a folder", "use --out h"});
  EXPECT_FALSE(has("h.pt"));
  EXPECT_FALSE(has("run.onnx"));
}

TEST_F(OnnxFile, WhatIsNoWholeRunIsRefused) {
  works(train("--out run"));
  put("run/best.safetensors", "none");
  refused("hearth export run --format onnx --out run.onnx", {"run/best.safetensors"});
  fs::create_directories(at("folder"));
  put("folder/a.txt", "a");
  works(train("--out again"));
  refused("hearth export again --format onnx --out folder", {"folder"});
  refused("hearth export again --format onnx --out none/sub/a.onnx", {"none/sub"});
  EXPECT_FALSE(has("run.onnx"));
  EXPECT_EQ(get("folder/a.txt"), "a");
}

}  // namespace
}  // namespace hearth
