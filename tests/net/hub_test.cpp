#include <gmock/gmock.h>

#include <fstream>

#include "base/error.h"
#include "net/hub_cache.h"
#include "net/hub_listing.h"
#include "net/hub_name.h"
#include "temporary_folder.h"

namespace hearth::net {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kCommit(40, 'c');

std::vector<std::string> needed(const std::string& name, const std::vector<std::string>& paths) {
  std::vector<HubFile> files;
  for (const std::string& path : paths) files.push_back({.path = path, .num_bytes = 1, .hash = kCommit});
  std::vector<std::string> chosen;
  for (const HubFile& file : needed_files(parse_hub_name(name), files)) chosen.push_back(file.path);
  return chosen;
}

TEST(HubName, ParsesAllForms) {
  HubName name = parse_hub_name("hf:Qwen/Qwen3-0.6B");
  EXPECT_EQ(name.repo, "Qwen/Qwen3-0.6B");
  EXPECT_EQ(name.revision, "main");
  EXPECT_FALSE(name.is_dataset);
  name = parse_hub_name("hf:timm/resnet50.a1_in1k@v1.0/sub/model.safetensors");
  EXPECT_EQ(name.revision, "v1.0");
  EXPECT_EQ(name.path, "sub/model.safetensors");
  name = parse_hub_name("hf://datasets/org/data@refs%2Fpr%2F1/train.jsonl");
  EXPECT_TRUE(name.is_dataset);
  EXPECT_EQ(name.repo, "org/data");
  EXPECT_EQ(name.revision, "refs/pr/1");
  EXPECT_EQ(name.text(), "hf:datasets/org/data@refs%2Fpr%2F1/train.jsonl");
  EXPECT_EQ(parse_hub_name("gpt2").repo, "gpt2");
  EXPECT_EQ(parse_hub_name("hf:org/name/").path, "");
  EXPECT_TRUE(is_hub_name("hf:a/b"));
  EXPECT_FALSE(is_hub_name("models/hf:a"));
}

TEST(HubName, RefusesPathsThatEscape) {
  for (const char* text :
       {"", "hf:", "hf:/etc", "hf:..", "hf:../x", "hf:a/..", "hf:a/b/../c", "hf:a/b//c", "hf:a/b/.",
        "hf:a/b@../../x", "hf:a/b@", "hf:a/b\\c", "hf:a--b/c", "hf:a/b\n", "hf:a/b/c\x01"})
    EXPECT_THROW(parse_hub_name(text), UserError) << text;
  EXPECT_FALSE(is_safe_path(std::string(300, 'a')));
  EXPECT_FALSE(is_safe_path(std::string("a\0b", 3)));
  EXPECT_TRUE(is_safe_path("a..b/.c/d e"));
}

TEST(HubListing, ReadsFilesAndChecksThem) {
  const auto parse = [](const std::string& entry) { return parse_hub_listing("[" + entry + "]", "hf:a/b"); };
  const std::string hash(40, 'a'), large(64, 'b');
  EXPECT_THAT(parse(R"({"type":"directory","path":"x","oid":"","size":0},
                       {"type":"file","path":"x/y.json","size":12,"oid":")" +
                    hash + R"("},{"type":"file","path":"z","size":130,"oid":")" + hash +
                    R"(","lfs":{"oid":")" + large + R"(","size":5000000000,"pointerSize":130}})"),
              ElementsAre(HubFile{"x/y.json", 12, hash}, HubFile{"z", 5'000'000'000, large}));
  for (const std::string path : {"../x", "/x", "a/../../x", "a\\\\b", "", "a\\u0000b"})
    EXPECT_THAT([&] { parse(R"({"type":"file","size":1,"oid":")" + hash + R"(","path":")" + path + "\"}"); },
                ThrowsMessage<UserError>(HasSubstr("is not allowed")));
  for (const std::string size : {"-1", "1.5", "1e30", "18446744073709551615", "\"1\"", "null"})
    EXPECT_THROW(parse(R"({"type":"file","path":"x","oid":")" + hash + R"(","size":)" + size + "}"),
                 UserError);
  EXPECT_THROW(parse(R"({"type":"file","path":"x","size":1,"oid":"../../x"})"), UserError);
  EXPECT_THROW(parse_hub_listing("{}", "hf:a/b"), UserError);
  EXPECT_THROW(parse("1"), UserError);
}

TEST(HubListing, ChoosesOneFormatOfTheWeights) {
  EXPECT_THAT(
      needed("a/b", {".gitattributes", "README.md", "config.json", "model.safetensors", "pytorch_model.bin",
                     "flax_model.msgpack", "onnx/model.onnx", "tokenizer.model", "training_args.bin"}),
      ElementsAre("README.md", "config.json", "model.safetensors", "tokenizer.model"));
  EXPECT_THAT(
      needed("a/b", {"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                     "model.safetensors.index.json", "consolidated.safetensors"}),
      ElementsAre("config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                  "model.safetensors.index.json"));
  EXPECT_THAT(needed("a/b", {"pytorch_model.bin", "config.json"}),
              ElementsAre("config.json", "pytorch_model.bin"));
  EXPECT_THAT(needed("a/b", {"adapter_config.json", "adapter_model.safetensors", "optimizer.pt"}),
              ElementsAre("adapter_config.json", "adapter_model.safetensors"));
  EXPECT_THAT(needed("a/b", {"style.safetensors", "a.png"}), ElementsAre("style.safetensors"));
  EXPECT_THAT(
      [] {
        needed("a/b", {"a.safetensors", "b.safetensors"});
      },
      ThrowsMessage<UserError>(HasSubstr("hf:a/b/FILE: a.safetensors (1 B), b.safetensors")));
  EXPECT_THAT(
      [] {
        needed("a/b", {"config.json", "q4.gguf"});
      },
      ThrowsMessage<UserError>(HasSubstr("q4.gguf")));
}

TEST(HubListing, ChoosesTheComponentsOfAPipeline) {
  EXPECT_THAT(needed("a/b", {"model_index.json", "flux1-dev.safetensors", "scheduler/scheduler_config.json",
                             "vae/config.json", "vae/diffusion_pytorch_model.safetensors",
                             "vae/diffusion_pytorch_model.fp16.safetensors", "text_encoder/model.safetensors",
                             "text_encoder/config.json", "assets/a.png", "tokenizer/merges.txt"}),
              ElementsAre("model_index.json", "scheduler/scheduler_config.json", "text_encoder/config.json",
                          "text_encoder/model.safetensors", "tokenizer/merges.txt", "vae/config.json",
                          "vae/diffusion_pytorch_model.safetensors"));
}

TEST(HubListing, ChoosesNamedFilesAndDatasets) {
  EXPECT_THAT(needed("a/b/q4.gguf", {"q4.gguf", "q4.gguf2"}), ElementsAre("q4.gguf"));
  EXPECT_THAT(needed("datasets/a/b/train", {"train/1.jpg", "train/2.jpg", "train2/3.jpg"}),
              ElementsAre("train/1.jpg", "train/2.jpg"));
  EXPECT_THAT(needed("datasets/a/b", {".gitattributes", "a.jpg", "x/b.jpg"}),
              ElementsAre("a.jpg", "x/b.jpg"));
  EXPECT_THAT(
      [] {
        needed("datasets/a/b", {"a.jsonl", "data/b.parquet"});
      },
      ThrowsMessage<UserError>(HasSubstr("a/b/data/b.parquet is Parquet")));
  EXPECT_THAT([] { needed("a/b/confg.json", {"config.json"}); },
              ThrowsMessage<UserError>(HasSubstr("config.json")));
}

TEST(HubCache, LinksBlobsAndFindsThem) {
  const TemporaryFolder folder;
  const HubName name = parse_hub_name("org/tiny");
  const HubCache cache(folder.path(), name);
  EXPECT_EQ(cache.commit_of("main"), std::nullopt);
  const HubFile file{.path = "vae/config.json", .num_bytes = 3, .hash = std::string(40, 'a')};
  EXPECT_FALSE(cache.has(file, kCommit));
  const std::filesystem::path top = folder.path() / "models--org--tiny";
  std::filesystem::create_directories(top / "blobs");
  std::ofstream(cache.blob(file.hash)) << "{}\n";
  EXPECT_TRUE(cache.has(file, kCommit));
  cache.link(file, kCommit);
  cache.link(file, kCommit);
  cache.store_commit("refs/pr/1", kCommit);
  EXPECT_EQ(std::filesystem::read_symlink(top / "snapshots" / kCommit / "vae/config.json"),
            "../../../blobs/" + file.hash);
  EXPECT_EQ(cache.commit_of("refs/pr/1"), kCommit);
  EXPECT_EQ(cache.commit_of(kCommit), kCommit);
  EXPECT_EQ(cache.files_of(kCommit).at(0).path, "vae/config.json");

  const std::optional<HubName> found = hub_name_of_snapshot(cache.snapshot(kCommit) / "vae/config.json");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->repo, "org/tiny");
  EXPECT_EQ(found->revision, kCommit);
  EXPECT_EQ(found->path, "vae/config.json");
  EXPECT_EQ(hub_name_of_snapshot(cache.snapshot(kCommit))->path, "");
  EXPECT_EQ(hub_name_of_snapshot("/models/snapshots/x"), std::nullopt);
}

}  // namespace
}  // namespace hearth::net
