#pragma once

#include <span>
#include <string>
#include <vector>

#include "data/loader.h"
#include "engine/engine.h"
#include "models/model.h"

namespace hearth::recipe {

/// How the learning rate moves over a run.
struct ScheduleOptions {
  std::string name = "cosine";  ///< constant, step, cosine, onecycle
  int64_t warmup_steps = 0;
  int64_t step_size = 1000;  ///< step: every so many steps ...
  double gamma = 0.1;        ///< ... the rate is multiplied by this
  double min_lr = 0;         ///< cosine: the last rate
};

/// A low-rank adapter, as recipes and PEFT's adapter_config.json say it.
struct AdapterOptions {
  std::string name;  ///< "lora"; empty: none, unless there is a path
  std::string path;  ///< a PEFT adapter to start from: its rank, alpha and modules hold
  int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;
  bool rslora = false;  ///< scale alpha / sqrt(rank) (Kalajdzievski 2023, arXiv 2312.03732), not alpha / rank
  std::vector<std::string> targets = {"all-linear"};
  std::vector<std::string> modules_to_save;
  std::string quantize;  ///< "nf4" or "int8": how the model under it is stored

  bool wanted() const { return !name.empty() || !path.empty(); }
  double scale() const;
};

/// Direct preference optimization (Rafailov et al. 2023, arXiv 2305.18290).
struct DpoOptions {
  double beta = 0.1;           ///< how dear it is to leave the reference
  double label_smoothing = 0;  ///< the share of pairs that are taken to be the wrong way round
};

/// A language model and its text; see text/samples.h and text/packing.h.
struct TextOptions {
  std::string model;      ///< a transformers folder: config.json, weights, tokenizer
  std::string config;     ///< config.json of a new model instead
  std::string tokenizer;  ///< folder or file; empty: the model's, or the one beside the config
  std::string val_path;   ///< held-out text; empty: the last val_share of the data
  double val_share = 0.1;
  int64_t context = 1024;           ///< tokens of a row
  std::string format = "detect";    ///< of records, text::parse_format
  std::vector<std::string> fields;  ///< "prompt=frage": what the data calls a field
  std::string chat_template;        ///< built-in name or file; empty: the tokenizer's own
  std::string date;  ///< YYYY-MM-DD that templates see as today; empty: today, which a run keeps
  std::vector<std::string> variables;  ///< of the template: "enable_thinking=false"
  std::string document = "file";       ///< of plain text: file, paragraph, line
  std::string overlong = "auto";       ///< truncate, drop, split, refuse; auto: split text, truncate records
  std::string cache;                   ///< folder of tokens; empty: the user's cache folder
  std::string bad_records = "refuse";  ///< or skip: those that cannot be used are left out, and counted
  bool train_on_prompt = false;
  bool packing = true;  ///< several samples to a row, which do not see each other
  bool pairs = false;   ///< records are preferences: a chosen and a rejected answer (train.objective dpo)

  fs::path config_file() const;
  /// Whether a file is one stream of tokens rather than samples.
  bool is_stream(const fs::path& data) const;
};

/// Updates that come to gradients or losses that are not finite, or to a loss far above those before: all is
/// made as it was, and their samples are left out.
struct BadStepOptions {
  int64_t most = 10;   ///< in a run; one more ends it, and so do three one after the other
  double z_score = 0;  ///< a loss so many standard deviations above the mean is bad; 0: off
};

/// A whole run as its YAML file says it. Defaults are here; see recipe_fields.cpp for keys and ranges.
struct Recipe {
  uint64_t seed = 0;
  int64_t threads = 0;                   ///< 0: every processor
  std::string device = "cpu";            ///< or as in exec::GpuWish
  int64_t reserve = int64_t{512} << 20;  ///< bytes of a GPU that are left free
  int64_t devices = 1;                   ///< workers that share each update, a device each
  std::string parallel = "data";         ///< how several share the work: parallel_ways()
  std::string transport = "host";        ///< what their sums go by: host memory, or nccl between GPUs
  std::string compress = "none";         ///< what they send of gradients: none, bf16, powersgd
  engine::LocalStepsOptions local;
  bool supervise = true;           ///< by a process that starts it again when it fails
  std::string self_test = "once";  ///< of a GPU's kernels: always, once, never
  std::string precision = "fp32";
  int64_t memory = 0;  ///< arena budget in bytes, 0: none
  std::string init;    ///< safetensors to start from
  passes::OffloadOptions offload;
  std::vector<std::string> passes_off;
  models::ModelOptions model;
  TextOptions text;
  AdapterOptions adapter;
  data::DatasetOptions data;
  int64_t val_count = 1000;
  data::LoaderOptions loader;
  engine::OptimizerOptions optimizer;
  std::string optimizer_name = "sgd";
  double lr = 0.05;
  ScheduleOptions schedule;
  int64_t steps = 0;  ///< 0: epochs decide
  int64_t epochs = 1;
  int64_t batch = 32;
  int64_t accumulate = 1;
  int64_t shards = 0;  ///< 0: as many as devices; see EngineOptions
  int64_t checkpoint_every = 500;
  int64_t keep_checkpoints = 2;
  double memory_checkpoint_every = 20;  ///< seconds; 0: none
  int64_t eval_every = 0;               ///< 0: at the end of each epoch
  bool eval_on_start = false;           ///< the first weights too
  int64_t log_every = 10;
  std::string objective = "cross_entropy";  ///< or dpo
  DpoOptions dpo;
  double label_smoothing = 0;
  BadStepOptions bad_steps;
  int64_t early_stop = 0;  ///< evaluations without a better score, 0: off
};

/// Reads a recipe, then `overrides` of the form key=value, and checks everything that needs no files.
/// Mistakes are UserErrors with FILE:LINE, and the nearest key where one is unknown.
Recipe load_recipe(const fs::path& path, std::span<const std::string> overrides = {});
Recipe parse_recipe(const std::string& yaml, const std::string& where,
                    std::span<const std::string> overrides = {});
/// Every key with its value; load_recipe reads it back to the same recipe.
std::string write_recipe(const Recipe& recipe);
/// One line per key: name, default, what it means.
std::string describe_keys();
/// The same as tables in Markdown, one for each section, and the names of other tools that are understood.
std::string describe_keys_in_markdown();

/// Whether the recipe trains a language model.
bool is_text(const Recipe& recipe);
/// Whether rows of its text hold several documents.
bool has_documents(const Recipe& recipe);
/// The model's name, for people.
std::string model_name(const Recipe& recipe);
/// Threads of each of its workers: where it says 0, an equal part of all cores.
int num_threads(const Recipe& recipe);
/// Whether workers keep what the others do not know, so that a run continues with as many as it had.
bool have_own_states(const Recipe& recipe);
/// How many of at most `num_devices` devices can share each update to the same bits; 0: none can.
int num_sharing(const Recipe& recipe, int num_devices);
/// The same model and data on one device, for a run that several have trained.
Recipe on_one_device(Recipe recipe);

}  // namespace hearth::recipe
