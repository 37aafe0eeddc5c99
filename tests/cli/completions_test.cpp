#include "cli/program.h"

namespace hearth {
namespace {

class Completions : public Program {
 protected:
  /// What bash offers for the last word of a line, with blanks between.
  std::string offered(const std::string& line) const {
    put("ask.bash", fmt::format("source completions\n"
                                "COMP_WORDS=({}{}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n"
                                "_hearth\necho \" ${{COMPREPLY[*]}} \"\n",
                                line, line.ends_with(' ') ? "''" : ""));
    return works("hearth completions bash >completions; bash ask.bash");
  }
};

TEST_F(Completions, AreVerbsAtFirst) {
  const std::string offers = offered("hearth ");
  const std::string help = works("hearth --help");
  for (const std::string verb : {"train", "completions", "--version"}) {
    EXPECT_THAT(offers, testing::HasSubstr(" " + verb + " "));
    EXPECT_THAT(help, testing::HasSubstr("  " + verb + " "));
  }
  EXPECT_EQ(offered("hearth expo"), " export \n");
}

TEST_F(Completions, AreRecipesFlagsAndKeysOfAVerb) {
  EXPECT_EQ(offered("hearth train lla"), " llama-dpo llama-full llama-lora \n");
  EXPECT_EQ(offered("hearth train demo --res"), " --resume \n");
  EXPECT_EQ(offered("hearth resume run --acc"), " --accept-changed-inputs \n");
  EXPECT_EQ(offered("hearth resume run train.accum"), " train.accumulate= \n");
  EXPECT_EQ(offered("hearth train demo train.accum"), " train.accumulate= \n");
  EXPECT_EQ(offered("hearth ls train.accum"), "  \n");
}

TEST_F(Completions, AreTheChoicesOfAFlag) {
  EXPECT_EQ(offered("hearth export MODEL --format "), " hf gguf compressed-tensors onnx diffusers kohya \n");
  // A file: bash's own completion takes over.
  EXPECT_EQ(offered("hearth export MODEL --out "), "  \n");
}

TEST_F(Completions, AreThoseOfAVerbWithinAVerb) {
  EXPECT_EQ(offered("hearth bench com"), " comm \n");
  const std::string outer = offered("hearth bench --");
  const std::string inner = offered("hearth bench comm --");
  EXPECT_THAT(outer, testing::HasSubstr(" --profile "));
  EXPECT_THAT(inner, testing::Not(testing::HasSubstr(" --profile ")));
  EXPECT_THAT(inner, testing::HasSubstr(" --max "));
}

TEST_F(Completions, NameEveryVerbInEveryShell) {
  const std::string help = works("hearth --help");
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const std::string script = works("hearth completions " + shell);
    for (size_t at = help.find("Subcommands:"); (at = help.find("\n  ", at)) != std::string::npos; ++at) {
      const std::string verb = help.substr(at + 3, help.find(' ', at + 3) - at - 3);
      if (verb.empty()) continue;
      EXPECT_THAT(script, testing::ContainsRegex("[ '(]" + verb + "[ ':]")) << shell;
    }
  }
}

TEST_F(Completions, OfAnUnknownShellAreRefused) { refused("hearth completions tcsh", {"tcsh", "bash"}); }

}  // namespace
}  // namespace hearth
