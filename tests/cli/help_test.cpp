#include <regex>

#include "cli/program.h"
#include "data/files.h"

namespace hearth {
namespace {

/// A folder with everything that the examples of the help name.
class Help : public Program {
 protected:
  Help() {
    put("new/config.json",
        R"({"model_type": "llama", "vocab_size": 260, "hidden_size": 16, "intermediate_size": 24,
      "num_hidden_layers": 1, "num_attention_heads": 2, "initializer_range": 0.2})");
    std::string vocab;
    for (int byte = 0, more = 256; byte < 256; ++byte) {
      const bool plain = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
      vocab += fmt::format("{}\"\\u{:04x}\": {}", byte == 0 ? "" : ", ", plain ? byte : more++, byte);
    }
    put("new/tokenizer.json",
        fmt::format(R"({{"added_tokens": [{{"id": 256, "content": "</s>", "special": true}}],
      "pre_tokenizer": {{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}},
      "model": {{"type": "BPE", "vocab": {{{}}}, "merges": []}}}})",
                    vocab));
    put("new/tokenizer_config.json", R"({"eos_token": "</s>"})");
    std::string records;
    for (int i = 0; i < 20; ++i)
      records += fmt::format("{{\"prompt\": \"{} is\", \"completion\": \"{}\"}}\n", i, i);
    put("FILE.jsonl", records);
    put("IMAGE.png", data::encode_png(data::speckled(8, 8, 3)));
    for (const char* split : {"train", "test"})
      for (const char* name : {"ant", "bee"})
        put(fmt::format("PHOTOS/{}/{}/a.png", split, name), data::encode_png(data::speckled(8, 8, 3)));
    put("buffers.csv", "id,lower,upper,size\na,0,2,40\nb,1,3,60\n");
    works(
        "hearth train pretrain-llama model.config=new/config.json model.tokenizer=new data=FILE.jsonl "
        "train.steps=1 --out MODEL");
    works("hearth train tiny.yaml --out runs/demo");
  }
};

TEST_F(Help, TheExampleOfEveryVerbWorks) {
  const std::string verbs[] = {"train",       "resume",   "eval",     "predict", "plan",        "dump",
                               "ops",         "pack",     "bench",    "ls",      "cp",          "validate",
                               "generate",    "merge",    "tokenize", "export",  "checkpoints", "doctor",
                               "completions", "topology", "watch"};
  const std::string help = works("hearth --help");
  for (const std::string& verb : verbs) {
    EXPECT_THAT(help, testing::ContainsRegex("\n +" + verb + " ")) << verb;
    const std::string text = works(fmt::format("hearth {} --help", verb));
    const size_t at = text.find("Example:\n  hearth " + verb);
    ASSERT_NE(at, std::string::npos) << text;
    std::string line = text.substr(text.find("hearth", at));
    line = line.substr(0, line.find('\n'));
    const Result result = shell("export XDG_CACHE_HOME=$PWD/cache; " + line);
    EXPECT_EQ(result.code, 0) << line << "\n" << result.out << result.err;
  }
}

TEST_F(Help, TheExamplesOfTheProgramAreLines) {
  const std::string help = works("hearth --help");
  works("export XDG_CACHE_HOME=$PWD/cache; hearth train llama-lora model=./MODEL data=FILE.jsonl");
  size_t count = 0;
  const std::regex example("  (hearth [a-z]+ .*?)(?:   .*)?\n");
  for (std::sregex_iterator at(help.begin(), help.end(), example), end; at != end; ++at) {
    const std::string line = (*at)[1];
    // It takes a minute.
    if (line.find("train recipes/demo.yaml") != std::string::npos) continue;
    const Result result = shell("export XDG_CACHE_HOME=$PWD/cache; " + line);
    EXPECT_EQ(result.code, 0) << line << "\n" << result.out << result.err;
    ++count;
  }
  EXPECT_EQ(count, 9U) << help;
}

TEST_F(Help, WithoutArgumentsTheProgramNamesFiveCommands) {
  EXPECT_EQ(count_of(works("hearth"), "\n  hearth "), 5U);
}

TEST_F(Help, TrainWithDataPrintsTheCommandThatTrainsOnIt) {
  const std::string text = works("hearth train PHOTOS 'data.normalize=imagenet'");
  EXPECT_THAT(text, testing::HasSubstr("2 training and 2 test images of 2 classes: ant, bee"));
  EXPECT_THAT(text, testing::HasSubstr(
                        "\n  hearth train images-resnet18 data.path=PHOTOS data.normalize=imagenet\n"));
  EXPECT_FALSE(fs::exists(at("runs/images-resnet18")));
  EXPECT_THAT(works("hearth train FILE.jsonl"),
              testing::HasSubstr("hearth train llama-lora data=FILE.jsonl model=MODEL"));
  refused("hearth train FILE.jsonl --yes", {"llama-lora", "model=MODEL"});
  works("hearth train PHOTOS --yes train.steps=1 train.batch=2 data.image_size=16 --out runs/photos");
  EXPECT_TRUE(fs::exists(at("runs/photos/model.safetensors")));
  EXPECT_THAT(get("runs/photos/report.html"),
              testing::HasSubstr("hearth train images-resnet18 data.path=PHOTOS"));
}

}  // namespace
}  // namespace hearth
