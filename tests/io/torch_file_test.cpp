#include "io/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "io/weight_files.h"
#include "limited_child.h"
#include "temporary_folder.h"
#include "torch_writer.h"

namespace hearth::io {
namespace {

using namespace torch_writer;  // NOLINT(google-build-using-namespace)
using testing::ElementsAre;
using testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& file) { return std::as_bytes(std::span(file)); }

std::string refusal_of(const std::string& file) {
  try {
    parse_torch_file(bytes_of(file), "x.pt");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}
std::string refusal_of(const std::string& value, const std::map<std::string, std::string>& storages) {
  return refusal_of(torch_writer::file(value, storages));
}

std::vector<float> values_of(const TensorView& tensor) {
  std::vector<float> values(tensor.bytes.size() / 4);
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}
std::vector<std::string> names_of(const TorchTensors& read) {
  std::vector<std::string> names;
  for (const TensorView& tensor : read.tensors) names.push_back(tensor.name);
  return names;
}
std::vector<std::string> names_in(const std::string& value) {
  return names_of(
      parse_torch_file(bytes_of(torch_writer::file(value, {{"0", floats({1, 2, 3, 4, 5, 6})}})), "x"));
}

const std::string kSix = tensor(storage("0", 6), {2, 3}, {3, 1});
const std::map<std::string, std::string> kSixFloats = {{"0", floats({1, 2, 3, 4, 5, 6})}};

TEST(TorchFile, ReadsTensorsOfAnyOrder) {
  const std::string six = storage("0", 6);
  const std::string file = torch_writer::file(
      dict({{"plain", kSix},
            {"turned", tensor(six, {3, 2}, {1, 3})},
            {"part", tensor(six, {2}, {1}, 3)},
            {"column", tensor(six, {2, 1}, {3, 7})},
            {"none", tensor(six, {0, 4}, {4, 1})},
            {"number", tensor(storage("1", 1, "LongStorage"), {}, {})},
            {"parameter", call(name("torch._utils", "_rebuild_parameter"), {kSix, "\x88", "N"})},
            {"epoch", integer(3)}}),
      {{"0", floats({1, 2, 3, 4, 5, 6})}, {"1", std::string(8, '\1')}});
  const TorchTensors read = parse_torch_file(bytes_of(file), "x");
  EXPECT_THAT(names_of(read),
              ElementsAre("column", "none", "number", "parameter", "part", "plain", "turned"));
  EXPECT_THAT(values_of(read.tensors[0]), ElementsAre(1, 4));
  EXPECT_EQ(read.tensors[1].shape, Shape({0, 4}));
  EXPECT_EQ(read.tensors[2].dtype, DType::i64);
  EXPECT_THAT(values_of(read.tensors[3]), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(values_of(read.tensors[4]), ElementsAre(4, 5));
  EXPECT_EQ(read.tensors[6].shape, Shape({3, 2}));
  EXPECT_THAT(values_of(read.tensors[6]), ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST(TorchFile, FindsTheStateDict) {
  const std::string weights = dict({{"module.a", kSix}, {"module.b", kSix}});
  EXPECT_THAT(names_in(weights), ElementsAre("a", "b"));
  EXPECT_THAT(names_in(dict({{"epoch", integer(1)}, {"model", weights}, {"best", kSix}})),
              ElementsAre("a", "b"));
  EXPECT_THAT(names_in(dict({{"optimizer", dict({{"x", dict({{"y", kSix}})}})}, {"state_dict", weights}})),
              ElementsAre("a", "b"));
  EXPECT_THAT(names_in(dict({{"mine", weights}, {"epoch", integer(1)}})), ElementsAre("a", "b"));
  EXPECT_THAT(names_in(dict({{"_orig_mod.module.a", kSix}, {"_orig_mod.module.b", kSix}})),
              ElementsAre("a", "b"));
  EXPECT_THAT(names_in(dict({{"model_ema", dict({{"n_averaged", kSix}, {"module.a", kSix}})}})),
              ElementsAre("a"));
  EXPECT_THAT(names_in(dict({{"module.a", kSix}, {"b", kSix}})), ElementsAre("b", "module.a"));
  EXPECT_THAT(refusal_of(dict({{"epoch", integer(1)}, {"lr", "N"}}), {}),
              HasSubstr("expected a state dict (tensors by their names, alone or under 'model' or "
                        "'state_dict'), found the keys 'epoch', 'lr'"));
  EXPECT_THAT(refusal_of(dict({{"one", weights}, {"two", dict({{"c", kSix}})}}), kSixFloats),
              HasSubstr("'one', 'two'"));
  EXPECT_THAT(refusal_of(kSix, kSixFloats), HasSubstr("found none"));
}

TEST(TorchFile, RunsNothing) {
  for (const auto& [module, function] :
       std::vector<std::pair<std::string, std::string>>{{"os", "system"},
                                                        {"posix", "system"},
                                                        {"builtins", "eval"},
                                                        {"torch.nn.modules.linear", "Linear"},
                                                        {"torch._utils", "_rebuild_sparse_tensor"}}) {
    const std::string hostile = call(name(module, function), {text("touch /tmp/pwned")});
    const std::string found = fmt::format("{}.{}", module, function);
    EXPECT_THAT(refusal_of(dict({{"a", kSix}, {"b", hostile}}), kSixFloats),
                HasSubstr("x.pt: it contains '" + found + "'"));
    // Protocol 4 takes both names from the stack.
    const std::string stacked = text(module) + text(function) + "\x93" + tuple({text("id")}) + "R";
    EXPECT_THAT(refusal_of(dict({{"a", kSix}, {"b", stacked}}), kSixFloats), HasSubstr("'" + found + "'"));
  }
  // Opcodes that import by other names, and calls of what is no name.
  for (const std::string& hostile : {std::string("ios\nsystem\n"), std::string("\x82\1"),
                                     text("os.system") + ")R", std::string("Pid\n"), dict({}) + ")\x81"})
    EXPECT_THAT(refusal_of(dict({{"a", kSix}, {"b", hostile}}), kSixFloats),
                HasSubstr("cannot read its pickle at byte"));
  EXPECT_EQ(
      refusal_of(dict({{"a", kSix}, {"args", call(name("argparse", "Namespace"), {}) + dict({}) + "b"}}),
                 kSixFloats),
      "");
}

TEST(TorchFile, TensorsLieInTheirStorage) {
  const std::string six = storage("0", 6);
  const auto refused = [&](const std::string& value) { return refusal_of(dict({{"a", value}}), kSixFloats); };
  EXPECT_THAT(refused(tensor(six, {7}, {1})), HasSubstr("less data than the tensor 'a' needs"));
  EXPECT_THAT(refused(tensor(six, {2}, {1}, 5)), HasSubstr("less data than the tensor"));
  EXPECT_THAT(refused(tensor(six, {2, 2}, {5, 2})), HasSubstr("less data than the tensor"));
  EXPECT_THAT(refused(tensor(six, {2, 2}, {1 << 30, 1})), HasSubstr("less data than the tensor"));
  EXPECT_THAT(refused(tensor(six, {6}, {0})), HasSubstr("elements overlap"));
  EXPECT_THAT(refused(tensor(six, {2, 2}, {1, 1})), HasSubstr("elements overlap"));
  EXPECT_THAT(refused(tensor(six, {2}, {1}, -1)), HasSubstr("without a type or an offset"));
  EXPECT_THAT(refused(tensor(six, {-2}, {1})), HasSubstr("the tensor 'a' with an invalid shape"));
  EXPECT_THAT(refused(tensor(six, {1 << 30, 1 << 30, 1 << 30}, {1, 1, 1})), HasSubstr("'a': "));
  EXPECT_THAT(refused(tensor(six, {2}, {1, 1})), HasSubstr("1 sizes and 2 strides"));
  EXPECT_THAT(refused(tensor(storage("1", 6), {6}, {1})),
              HasSubstr("has no member 'data/1', the data of the tensor 'a'"));
  EXPECT_THAT(refused(tensor(storage("../0", 6), {6}, {1})), HasSubstr("has no member 'data/../0'"));
  EXPECT_THAT(refused(tensor(integer(1), {6}, {1})), HasSubstr("the tensor 'a' without data"));
  // A storage's own count is not what bounds a tensor.
  EXPECT_THAT(refused(tensor(storage("0", 1 << 30), {1 << 20}, {1})), HasSubstr("less data than the tensor"));
  // A duplicate name.
  EXPECT_THAT(refusal_of(dict({{"a", kSix}, {"a", kSix}}), kSixFloats), HasSubstr("two tensors named 'a'"));
}

TEST(TorchFile, RefusesOtherArchives) {
  EXPECT_THAT(refusal_of(torch_writer::file(dict({{"a", kSix}}), kSixFloats, true)),
              HasSubstr("is compressed"));
  ZipWriter program;
  program.add_file("a/data.pkl", "\x80\x02}.");
  program.add_file("a/constants.pkl", "");
  EXPECT_THAT(refusal_of(program.bytes()), HasSubstr("TorchScript"));
  ZipWriter other;
  other.add_file("a/b", "c");
  EXPECT_THAT(refusal_of(other.bytes()), HasSubstr("has no data.pkl"));
  // Two members of the same bytes: the second entry of the directory leads to the first storage.
  const std::map<std::string, std::string> two = {{"0", std::string(24, 'x')}, {"1", std::string(24, 'y')}};
  std::string overlapping = torch_writer::file(dict({{"a", kSix}}), two);
  const auto entry_of = [&](const char* key) { return overlapping.rfind(key) - 46; };
  std::memcpy(overlapping.data() + entry_of("archive/data/1") + 42,
              overlapping.data() + entry_of("archive/data/0") + 42, 4);
  EXPECT_THAT(refusal_of(overlapping), HasSubstr("zip members that overlap"));
  const std::string whole = torch_writer::file(dict({{"a", kSix}}), kSixFloats);
  for (size_t length = 0; length < whole.size(); ++length) EXPECT_NE(refusal_of(whole.substr(0, length)), "");
}

/// `repeated` times `unit` between two other parts.
std::string many(const std::string& before, size_t repeated, const std::string& unit,
                 const std::string& after) {
  std::string ops = before;
  ops.reserve(before.size() + repeated * unit.size() + after.size());
  for (size_t i = 0; i < repeated; ++i) ops += unit;
  return ops + after;
}

TEST(TorchFile, HostilePicklesTakeMemoryAndTimeByTheirSize) {
  // Lists that double at each of 60 levels; a tuple in a tuple; names, dictionaries and copies again and
  // again.
  const std::string laughs = many("](NNe", 60, "q\1(h\1h\1t", "0" + dict({{"a", kSix}}));
  const std::string deep = many(")", 1 << 20, "\x85", "0" + dict({{"a", kSix}}));
  const std::string itself = "}q\1" + text("model") + "h\1s";
  const std::string marks = many("", 1 << 20, "(", "");
  const std::string long_key =
      many("}(" + text(std::string(1 << 20, 'k')) + "q\1" + kSix + "q\2", 1 << 18, "h\1h\2", "u");
  const std::string same_dict = many(many("}(", 1 << 18, "NN", "u") + "q\4" + "0}(", 1 << 18, "Nh\4", "u");
  const std::string big = std::string(1 << 20, 'x');
  std::string copies = "}(";
  for (int i = 0; i < 4000; ++i)
    copies += text(std::to_string(i)) + tensor(storage("0", 1 << 18), {512, 512}, {1, 512});
  copies += "u";
  for (const std::string& value : {laughs, deep, itself, marks, long_key, same_dict, copies}) {
    const std::string file = torch_writer::file(value, {{"0", big}, {"1", floats({1, 2, 3, 4, 5, 6})}});
    EXPECT_WITHIN(int64_t{512} << 20, refusal_of(file));
  }
  EXPECT_NE(refusal_of(torch_writer::file(copies, {{"0", big}})), "");
  EXPECT_NE(refusal_of(torch_writer::file(itself, {})), "");
  EXPECT_THAT(refusal_of("}", {{"0", ""}}), HasSubstr("expected a state dict"));
  EXPECT_THAT(refusal_of(many("", 5 << 20, "N", ""), {}), HasSubstr("it has more than 4194304 values"));
  EXPECT_THAT(refusal_of(many("", 33 << 20, "(", ""), {}),
              HasSubstr("besides the tensors, more than 32.0 MiB"));
}

TEST(TorchFile, WeightFilesTellThemByContent) {
  const TemporaryFolder folder;
  const auto put = [&](const char* name, const std::string& bytes) {
    std::ofstream(folder.path() / name, std::ios::binary) << bytes;
  };
  put("a.anything", torch_writer::file(dict({{"w", tensor(storage("0", 6), {3, 2}, {1, 3})}}), kSixFloats));
  const WeightFiles one(folder.path() / "a.anything");
  ASSERT_NE(one.find("w"), nullptr);
  // A copy in memory is not given back.
  one.release(*one.find("w"));
  EXPECT_THAT(values_of(*one.find("w")), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_TRUE(one.metadata().empty());

  put("pytorch_model-00001-of-00002.bin", torch_writer::file(dict({{"a", kSix}}), kSixFloats));
  put("pytorch_model-00002-of-00002.bin", torch_writer::file(dict({{"b", kSix}}), kSixFloats));
  put("pytorch_model.bin.index.json",
      R"({"weight_map": {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}})");
  EXPECT_THAT(WeightFiles(folder.path()).names(), ElementsAre("a", "b"));
  const std::vector<float> values = {1};
  write_safetensors(
      folder.path() / "model.safetensors",
      {{.name = "c", .dtype = DType::f32, .shape = {1}, .bytes = std::as_bytes(std::span(values))}});
  EXPECT_THAT(WeightFiles(folder.path()).names(), ElementsAre("c")) << "safetensors come first";
}

}  // namespace
}  // namespace hearth::io
