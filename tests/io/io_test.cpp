#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "io/checkpoint.h"
#include "io/event_file.h"
#include "io/report.h"
#include "io/safetensors.h"
#include "limited_child.h"
#include "shared_data.h"
#include "temporary_folder.h"

namespace hearth::io {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return text;
}

std::string record_of(std::string_view event) {
  std::string record;
  append_event_record(record, event);
  return record;
}

TEST(EventFile, MatchesTheKnownBytes) {
  EXPECT_EQ(masked_crc32c("123456789"), 0xc78ab0e5U);
  std::string event;
  append_version_event(event, 1.0);
  EXPECT_EQ(hex(record_of(event)),
            "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a");
  event.clear();
  append_scalar_event(event, 2.0, 5, "loss", 0.5F);
  EXPECT_EQ(hex(record_of(event)),
            "1a00000000000000129bd82d09000000000000004010052a0d0a0b0a046c6f7373150000003fdb81a714");
  event.clear();
  append_session_event(event, 2.0, 6);
  EXPECT_EQ(hex(event), "09000000000000004010063a020801");
  event.clear();
  append_image_event(event, 2.0, 5, "a", {2, 3}, "PNG");
  EXPECT_EQ(hex(event), "09000000000000004010052a100a0e0a01612209080210032203504e47");
}

std::vector<std::byte> file_bytes(const std::string& header, size_t data_bytes) {
  std::vector<std::byte> bytes(8 + header.size() + data_bytes);
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

TEST(Safetensors, RoundTrips) {
  const TemporaryFolder folder;
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const auto bytes = std::as_bytes(std::span(values));
  write_safetensors(folder.path() / "a.safetensors",
                    {{.name = "w", .dtype = DType::f32, .shape = {2, 3}, .bytes = bytes}});
  const SafetensorsFile file(folder.path() / "a.safetensors");
  const TensorView* found = file.find("w");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->shape, Shape({2, 3}));
  EXPECT_EQ(std::memcmp(found->bytes.data(), values.data(), 24), 0);
}

TEST(Safetensors, RefusesLies) {
  const auto refused = [](const std::string& header, size_t data_bytes) {
    try {
      parse_safetensors(file_bytes(header, data_bytes), "x");
    } catch (const UserError&) {
      return true;
    }
    return false;
  };
  EXPECT_FALSE(refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8));
  EXPECT_TRUE(refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9)) << "stray bytes";
  EXPECT_TRUE(refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7)) << "short file";
  EXPECT_TRUE(refused(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8)) << "wrong size";
  EXPECT_TRUE(refused(R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})", 8)) << "unknown dtype";
  EXPECT_TRUE(
      refused(R"({"a":{"dtype":"F32","shape":[1099511627776,1099511627776],"data_offsets":[0,8]}})", 8));
  EXPECT_TRUE(refused(
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
      6));
  EXPECT_TRUE(refused(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
      1));
  EXPECT_TRUE(refused("[1,2]", 0));
  EXPECT_TRUE(refused("{", 0));
}

std::string fault_of(const std::string& header, size_t data_bytes) {
  try {
    parse_safetensors(file_bytes(header, data_bytes), "x");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Safetensors, OffsetsAndLengthsAreWholeNumbers) {
  const auto fault = [](const char* shape, const char* offsets) {
    return fault_of(
        fmt::format(R"({{"a": {{"dtype": "U8", "shape": {}, "data_offsets": {}}}}})", shape, offsets), 2);
  };
  EXPECT_EQ(fault("[2]", "[0, 2]"), "");
  const std::string at = "x: the header at tensor 'a': expected whole numbers below 2^64, got ";
  EXPECT_EQ(fault("[2]", "[0.5, 2]"), at + "0.5");
  EXPECT_EQ(fault("[2]", "[0, 2.0]"), at + "2.0");
  EXPECT_EQ(fault("[2.0]", "[0, 2]"), at + "2.0");
  EXPECT_EQ(fault("[2e0]", "[0, 2]"), at + "2e0");
  EXPECT_EQ(fault("[-2]", "[0, 2]"), at + "-2");
  EXPECT_EQ(fault("[2]", "[0, 18446744073709551618]"), at + "18446744073709551618");
  EXPECT_EQ(fault("[18446744073709551614]", "[0, 2]").substr(0, 29), "x: the header at tensor 'a': ");
  EXPECT_EQ(fault("[1,1,1,1,1,1,2]", "[0, 2]").substr(0, 29), "x: the header at tensor 'a': ");
  EXPECT_NE(fault("[[2]]", "[0, 2]"), "");
  EXPECT_NE(fault("[2]", "[0, true]"), "");
  EXPECT_NE(fault("[2]", "\"02\""), "");
}

TEST(Safetensors, TheHeaderIsOneObjectAndNothingElse) {
  const std::string entry = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1])";
  EXPECT_EQ(fault_of("{" + entry + "}}  ", 1), "");
  EXPECT_EQ(fault_of("{" + entry + R"(,"more":{"b":[1,{}]}},"__metadata__":{"format":"pt"}})", 1), "");
  EXPECT_EQ(fault_of("{" + entry + "}}" + std::string(1, '\0') + "x", 1),
            "x: the header: expected JSON in UTF-8, but it breaks at byte 54 of 55");
  EXPECT_EQ(fault_of("{" + entry + R"(,"dtype":"I8"}})", 1),
            "x: the header at tensor 'a': expected 'dtype' once");
  EXPECT_EQ(fault_of("{" + entry + "}," + entry + "}}", 1),
            "x: the header has two tensors named 'a'; save it with unique names");
  EXPECT_EQ(fault_of(R"({"a":{"dtype":"U8","shape":[1]}})", 1),
            "x: the header at tensor 'a': expected dtype, shape and data_offsets");
}

/// A length of 0x0280 to 0x0580 looks like the first bytes of a pickle, 0x04034b50 like those of a zip
/// archive.
TEST(Safetensors, AnyLengthOfTheHeaderIsRead) {
  for (const size_t length : {0x280, 0x380, 0x480, 0x580, 0x10280, 0x04034b50}) {
    std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
    header.resize(length, ' ');
    EXPECT_EQ(fault_of(header, 1), "") << length;
  }
  EXPECT_THAT(fault_of("x" + std::string(0x280 - 1, ' '), 1), testing::HasSubstr("torch.save"));
}

TEST(Safetensors, TakesMemoryAndTimeByItsSize) {
  std::string names = "{";
  for (int i = 0; i < 200'000; ++i) {
    names += fmt::format("{}\"model.layers.{}\":{{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[{},{}]}}",
                         i == 0 ? "" : ",", i, i, i + 1);
  }
  const std::vector<std::byte> many = file_bytes(names + "}", 200'000);
  EXPECT_WITHIN(8 * std::ssize(many), EXPECT_EQ(parse_safetensors(many, "x").size(), 200'000U));
  std::string objects, metadata = "{\"__metadata__\":";
  while (objects.size() < 30'000'000) objects += "{\"a\":";
  const std::vector<std::string> hostile = {std::string(30'000'000, '['), objects,
                                            metadata + std::string(30'000'000, '['), metadata + objects};
  for (const std::string& header : hostile) {
    const std::vector<std::byte> file = file_bytes(header, 0);
    EXPECT_WITHIN(std::ssize(file), EXPECT_THROW(parse_safetensors(file, "x"), UserError));
  }
}

TEST(Safetensors, RefusesTheSharedInvalidFile) {
  HEARTH_SHARED_DATA(folder, "models/tiny_files/weight-inspect");
  EXPECT_THROW(SafetensorsFile(folder / "tiny.safetensors"), UserError);
}

TEST(Checkpoint, TheNewestCompleteOneIsFound) {
  const TemporaryFolder folder;
  std::vector<std::byte> memory(1000, std::byte{1});
  {
    CheckpointWriter writer(folder.path(), std::ssize(memory), 3);
    for (int64_t step = 1; step <= 4; ++step) {
      memory[0] = static_cast<std::byte>(step);
      writer.save(step, memory, "{\"step\":" + std::to_string(step) + "}");
    }
    writer.flush();
  }
  auto found = find_newest_checkpoint(folder.path(), nullptr);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 4);
  EXPECT_EQ(read_checkpoint(found->path).memory, memory);
  EXPECT_FALSE(fs::exists(folder.path() / "step-000000001")) << "only three are kept";

  fs::resize_file(folder.path() / "step-000000004" / "memory.bin", 999);
  fs::remove(folder.path() / "step-000000003" / "manifest.json");
  found = find_newest_checkpoint(folder.path(), nullptr);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 2);
  ASSERT_EQ(found->refused.size(), 2U);
  EXPECT_NE(found->refused[0].find("cut short"), std::string::npos);
  EXPECT_NE(found->refused[1].find("no manifest"), std::string::npos);

  const fs::path manifest = found->path / "manifest.json";
  write_file_atomically(manifest, read_file(manifest) + std::string("\0{}", 3));
  EXPECT_EQ(check_checkpoint(found->path), "its manifest is damaged");
}

TEST(Checkpoint, OneThatWasPassedOverDoesNotCrowdOutNewOnes) {
  const TemporaryFolder folder;
  const std::vector<std::byte> memory(100);
  const auto save = [&](int64_t step) {
    CheckpointWriter writer(folder.path(), std::ssize(memory), 2);
    writer.save(step, memory, "{}");
    writer.flush();
  };
  save(20);
  save(30);
  save(40);
  fs::create_directories(folder.path() / ".tmp-step-000000050");
  fs::resize_file(folder.path() / "step-000000030" / "memory.bin", 9);
  fs::resize_file(folder.path() / "step-000000040" / "memory.bin", 9);
  EXPECT_FALSE(find_newest_checkpoint(folder.path(), nullptr));
  save(25);
  const auto found = find_newest_checkpoint(folder.path(), nullptr);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 25);
  EXPECT_TRUE(found->refused.empty());
  EXPECT_FALSE(fs::exists(folder.path() / ".tmp-step-000000050")) << "a killed run's temporary folder";
  save(25);
  EXPECT_EQ(find_newest_checkpoint(folder.path(), nullptr)->step, 25) << "the same step again";
}

TEST(Checkpoint, NothingBehindALinkIsDeleted) {
  const TemporaryFolder folder, elsewhere;
  const std::vector<std::byte> memory(100);
  const auto save = [&](const fs::path& to, int64_t step) {
    CheckpointWriter writer(to, std::ssize(memory), 1);
    writer.save(step, memory, "{}");
    writer.flush();
  };
  save(elsewhere.path(), 10);
  const fs::path linked = elsewhere.path() / "step-000000010";
  for (const char* name : {"step-000000010", "step-000000020", "step-000000030"})
    fs::create_directory_symlink(linked, folder.path() / name);
  save(folder.path(), 20);  // replaces one link; others are before and after it
  EXPECT_FALSE(check_checkpoint(linked));
  EXPECT_EQ(read_state(linked), "{}");
  fs::create_directory_symlink(linked, folder.path() / "step-000000005");
  prune_checkpoints(folder.path(), 1);
  EXPECT_FALSE(check_checkpoint(linked));

  fs::create_directory_symlink(folder.path(), elsewhere.path() / "checkpoints");
  EXPECT_THROW(save(elsewhere.path() / "checkpoints", 40), UserError);
  EXPECT_THROW(prune_checkpoints(elsewhere.path() / "checkpoints", 1), UserError);
}

TEST(Checkpoint, PruningKeepsTheNewestCompleteOnes) {
  const TemporaryFolder folder;
  const std::vector<std::byte> memory(100);
  {
    CheckpointWriter writer(folder.path(), std::ssize(memory), 9);
    for (const int64_t step : {5, 10, 15, 20}) {
      writer.save(step, memory, "{}");
      writer.flush();
    }
  }
  const auto steps_of = [](const std::vector<CheckpointInfo>& all) {
    std::vector<int64_t> steps;
    for (const CheckpointInfo& info : all) steps.push_back(info.step);
    return steps;
  };
  const auto damage = [&](const char* step) { fs::resize_file(folder.path() / step / "memory.bin", 9); };
  damage("step-000000015");
  const std::vector<CheckpointInfo> all = list_checkpoints(folder.path());
  EXPECT_EQ(steps_of(all), (std::vector<int64_t>{20, 15, 10, 5}));
  EXPECT_EQ(all[0].fault, "");
  EXPECT_GT(all[0].num_bytes, 100);
  EXPECT_THAT(all[1].fault, testing::HasSubstr("cut short"));
  EXPECT_EQ(steps_of(prune_checkpoints(folder.path(), 2)), (std::vector<int64_t>{15, 5}));
  EXPECT_EQ(steps_of(list_checkpoints(folder.path())), (std::vector<int64_t>{20, 10}));
  damage("step-000000020");
  damage("step-000000010");
  EXPECT_TRUE(prune_checkpoints(folder.path(), 1).empty()) << "what is left may still be of use to somebody";
}

TEST(Checkpoint, ADamagedByteIsSeen) {
  const TemporaryFolder folder;
  const std::vector<std::byte> memory(100);
  {
    CheckpointWriter writer(folder.path(), std::ssize(memory), 3);
    writer.save(7, memory, "{}");
    writer.flush();
  }
  const fs::path part = folder.path() / "step-000000007" / "memory.bin";
  std::string bytes = read_file(part);
  bytes[50] = 1;
  write_file_atomically(part, bytes);
  EXPECT_FALSE(find_newest_checkpoint(folder.path(), nullptr));
}

TEST(Report, AFlatCurveHasAnAxisFromZero) {
  const std::string chart = line_chart("accuracy", {{.name = "a", .points = {{1, 100}, {2, 100}}}});
  EXPECT_THAT(chart, testing::HasSubstr(">100</text>"));
  EXPECT_THAT(chart, testing::HasSubstr(">0</text>"));
  EXPECT_THAT(chart, testing::Not(testing::HasSubstr(">101</text>")));
}

/// Largest tick of a chart's vertical axis.
double top_of(const std::string& chart) {
  double top = 0;
  for (size_t at = 0; (at = chart.find("text-anchor='end'>", at)) != chart.npos; ++at)
    top = std::max(top, std::strtod(chart.c_str() + at + 18, nullptr));
  return top;
}

TEST(Report, ASpikeDoesNotFlattenACurve) {
  Series loss{.name = "loss", .points = {}};
  for (int64_t step = 1; step <= 200; ++step)
    loss.points.push_back({step, 2.0 - 0.005 * static_cast<double>(step)});
  const double top = top_of(line_chart("Loss", {loss}));
  loss.points[99].value = 5000;
  EXPECT_LT(top_of(line_chart("Loss", {loss})), 2 * top);
  EXPECT_THAT(line_chart("Loss", {loss}), testing::HasSubstr("\u25b2 5000"));
  // A curve that keeps falling has no spike.
  for (CurvePoint& point : loss.points) point.value = 100.0 / static_cast<double>(point.step);
  EXPECT_GE(top_of(line_chart("Loss", {loss}, "step", Scale::log)), 100);
}

TEST(Report, NamesCommandAndDataAndSwitchesToALogScale) {
  ReportData data{.title = "demo: smallcnn",
                  .subtitle = "shapes <1>",
                  .command = "hearth train demo",
                  .loss = {{1, 2}, {2, 1}}};
  data.strips = {{.images = {"png"}, .caption = "a"}};
  data.legend = {{"road", "rgb(1,2,3)"}};
  const std::string html = make_report(data);
  for (const char* part :
       {"shapes &lt;1&gt;", "hearth train demo", "log scale", "background:rgb(1,2,3)'></i>road"})
    EXPECT_THAT(html, testing::HasSubstr(part));
  // No logarithm of a loss of 0.
  data.loss = {{1, 2}, {2, 0}};
  EXPECT_THAT(make_report(data), testing::Not(testing::HasSubstr("log scale</label>")));
}

TEST(RunLog, WhatIsWithinArraysIsReadByPointers) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "log.jsonl";
  RunLog log(path, -1);
  log.step(1, 9, 0.5, 0.1, 1, 2, R"([{"power_w":290},{"power_w":281.5}])");
  log.step(2, 9, 0.5, 0.1, 1, 3);
  log.step(3, 9, 0.5, 0.1, 1, 4, R"([{"power_w":300}])");
  log.step(4, 9, 0.5, 0.1, 1, 4, "7");
  const auto curves = read_curves(path, {"loss", "/gpu/0/power_w", "/gpu/1/power_w", "/gpu/x/power_w"});
  EXPECT_EQ(curves[0].size(), 4U);
  ASSERT_EQ(curves[1].size(), 2U);
  EXPECT_EQ(curves[1][1].step, 3);
  EXPECT_EQ(curves[1][1].value, 300);
  ASSERT_EQ(curves[2].size(), 1U);
  EXPECT_EQ(curves[2][0].value, 281.5);
  EXPECT_TRUE(curves[3].empty());
}

TEST(Report, ShowsGpusWhereThereAreCurves) {
  ReportData data{.title = "a run"};
  EXPECT_EQ(make_report(data).find("<h2>GPUs</h2>"), std::string::npos);
  data.gpu_charts = {{"Power (W)", {{"power", "#38a169", {{1, 290}, {2, 300}}}}}};
  const std::string html = make_report(data);
  EXPECT_NE(html.find("<h2>GPUs</h2>"), std::string::npos);
  EXPECT_NE(html.find("Power (W)"), std::string::npos);
}

}  // namespace
}  // namespace hearth::io
