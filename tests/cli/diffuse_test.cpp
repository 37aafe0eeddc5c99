// Models that make pictures: trained, resumed, shared out, and asked for pictures.
#include "data/image.h"
#include "program.h"

namespace hearth {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Diffuse : public Program {
 protected:
  Diffuse() {
    put("flux.json", R"({"_class_name": "FluxTransformer2DModel", "in_channels": 48, "latent_patch": 4,
"num_layers": 1, "num_single_layers": 1, "num_attention_heads": 4, "attention_head_dim": 16,
"joint_attention_dim": 8, "pooled_projection_dim": 8, "axes_dims_rope": [4, 4, 8], "num_classes": 10,
"class_tokens": 2})");
    put("dit.json", R"({"_class_name": "DiTTransformer2DModel", "in_channels": 3, "patch_size": 4,
"num_layers": 1, "num_attention_heads": 4, "attention_head_dim": 16, "sample_size": 16, "out_channels": 6,
"num_embeds_ada_norm": 10})");
    put("flux.yaml", recipe("flux.json", "flow"));
    put("dit.yaml", recipe("dit.json", "epsilon"));
  }
  static std::string recipe(const char* config, const char* objective) {
    return fmt::format(R"(model: {{config: {}}}
data: {{kind: shapes, image_size: 16, count: 64, val_count: 8}}
train: {{objective: {}, steps: 6, batch: 8, checkpoint_every: 2, eval_every: 3, ema: 0.5}}
diffuse: {{steps: 2, val_pictures: 4}}
optimizer: {{name: adamw, lr: 0.01}}
threads: 1
)",
                       config, objective);
  }
};

TEST_F(Diffuse, RunsEndWithPicturesAndTheirReport) {
  for (const char* name : {"flux", "dit"}) {
    const std::string out = works(fmt::format("hearth train {0}.yaml --out {0}", name));
    EXPECT_THAT(out, AllOf(HasSubstr("64 training and 8 validation pictures of 10 classes, 16x16 pixels"),
                           HasSubstr("step 6: validation loss "), HasSubstr("1 pictures in samples/")));
    EXPECT_TRUE(has(fmt::format("{}/samples/step-000003-classes.png", name)));
    EXPECT_EQ(count_of(get(fmt::format("{}/report.html", name)), "data:image/png"), 2U);
    EXPECT_EQ(get(fmt::format("{}/classes.txt", name)).substr(0, 7), "circle\n");
  }
}

TEST_F(Diffuse, LearnWhatTheySee) {
  const auto first_and_last = [&](const char* recipe) {
    works(
        fmt::format("rm -rf run && hearth train {} --out run train.steps=150 train.eval_every=150 "
                    "train.eval_on_start=true train.ema=0",
                    recipe));
    const std::string log = get("run/trainer_log.jsonl"), key = "\"eval_loss\":";
    return std::pair(std::stod(log.substr(log.find(key) + key.size())), last_eval_loss("run"));
  };
  for (const char* recipe : {"flux.yaml", "dit.yaml", "dit.yaml train.objective=v"}) {
    const auto [first, last] = first_and_last(recipe);
    EXPECT_LT(last, 0.75 * first) << recipe;
  }
}

TEST_F(Diffuse, SeveralWorkersMakeTheSameBits) {
  works("hearth train flux.yaml --out one train.shards=4");
  for (const char* devices : {"2", "4"}) {
    works(fmt::format("rm -rf more && hearth train flux.yaml --out more train.shards=4 devices={}", devices));
    EXPECT_TRUE(get("one/model.safetensors") == get("more/model.safetensors")) << devices;
    EXPECT_TRUE(get("one/samples/step-000006-classes.png") == get("more/samples/step-000006-classes.png"));
  }
}

TEST_F(Diffuse, ResumeToTheBit) {
  works("hearth train flux.yaml --out whole");
  works(
      "hearth train flux.yaml --out parts && rm -rf parts/checkpoints/step-000000006 "
      "&& hearth train --resume --out parts");
  EXPECT_TRUE(get("whole/model.safetensors") == get("parts/model.safetensors"));
  EXPECT_TRUE(get("whole/samples/step-000006-classes.png") == get("parts/samples/step-000006-classes.png"));
}

TEST_F(Diffuse, PicturesDependOnTheirSeedAlone) {
  works("hearth train flux.yaml --out run && hearth train dit.yaml --out dit");
  works("hearth generate run --prompt star --seed 7 --count 3 --out three.png");
  works("hearth generate run --prompt star --seed 8 --out one.png --threads 2");
  // The files differ by nothing: both say seed 8.
  EXPECT_TRUE(get("three-2.png") == get("one.png"));
  EXPECT_THAT(get("one.png"), AllOf(HasSubstr("prompt"), HasSubstr("star"), HasSubstr("guidance")));
  works("hearth generate dit --prompt star --solver dpm --steps 5 --out dpm.png");
  works("hearth generate dit --prompt star --steps 5 --out ddim.png");
  EXPECT_FALSE(get("dpm.png") == get("ddim.png"));
}

TEST_F(Diffuse, WithoutGuidanceThePromptSaysNothing) {
  works("hearth train dit.yaml --out dit");
  const auto made = [&](const char* prompt, int guidance) {
    works(fmt::format("hearth generate dit --prompt {} --guidance {} --out a.png", prompt, guidance));
    const std::string png = get("a.png");
    return data::decode_image(std::as_bytes(std::span(png)), 3, "a.png").pixels;
  };
  EXPECT_EQ(made("star", 0), made("circle", 0));
  EXPECT_NE(made("star", 50), made("circle", 50));
}

TEST_F(Diffuse, RunsAreEvaluatedAndRecipesChecked) {
  works("hearth train flux.yaml --out run");
  EXPECT_THAT(works("hearth eval run"), HasSubstr(fmt::format("{:.4f}", last_eval_loss("run"))));
  EXPECT_THAT(works("hearth validate flux.yaml --out other"), HasSubstr("the recipe is well-formed"));
  EXPECT_THAT(works("hearth plan flux.yaml"), HasSubstr("parameters"));
}

TEST_F(Diffuse, MistakesAreOneSentence) {
  refused("hearth train flux-lora", {"config.json of a denoiser", "FLUX.1-dev", "not there"});
  refused("hearth train flux.yaml model.config=none.json", {"config.json of a denoiser", "none.json"});
  refused("hearth train flux.yaml data.kind=captions data.path=.", {"data.kind folder, idx", "got captions"});
  refused("hearth train flux.yaml data.image_size=18",
          {"multiples of 4", "got 18x18", "try data.image_size=16"});
  refused("hearth train flux.yaml diffuse.prompts=[stern]", {"got 'stern'", "star"});
  works("hearth train flux.yaml --out run");
  refused("hearth generate run --prompt stern", {"got 'stern'", "did you mean 'star'"});
  refused("hearth generate run --prompt star --solver ddim", {"--solver euler", "objective flow"});
  refused("hearth generate run --prompt star --max-tokens 3", {"--max-tokens", "makes pictures"});
  refused("hearth generate run", {"--prompt"});
  put("a.png",
      data::encode_png({.height = 4, .width = 4, .channels = 1, .pixels = std::vector<uint8_t>(16)}));
  refused("hearth predict run a.png", {"got 'run', which makes them", "hearth generate run"});
  refused("hearth generate run --prompt star --size 17", {"multiples of 4"});
}

}  // namespace
}  // namespace hearth
