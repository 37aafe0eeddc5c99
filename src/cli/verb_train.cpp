#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "base/output.h"
#include "base/text.h"
#include "cli/errors.h"
#include "cli/launched.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "comm/nccl.h"
#include "comm/probe.h"
#include "exec/card_choice.h"
#include "io/run_lock.h"
#include "train/stage_devices.h"
#include "train/trainer.h"
#include "train/weights.h"
#include "watch/device_probe.h"
#include "watch/supervisor.h"

namespace hearth::cli {
namespace {

std::atomic<bool> stop_requested{false};

/// Once: end behind this step with a checkpoint. Twice: at once, but for SIGHUP, which shells and kernels
/// both send.
void on_interrupt(int signal) {
  if (stop_requested.exchange(true) && signal != SIGHUP) _exit(130);
}

struct TrainArguments {
  std::string recipe;
  std::string out;
  bool resume = false;
  std::string dump_gradients;
};

/// runs/NAME, or runs/NAME-2 and so on where that is taken.
std::string default_folder(const std::string& recipe) {
  const std::string base = "runs/" + fs::path(recipe).stem().string();
  std::string folder = base;
  for (int i = 2; fs::exists(folder); ++i) folder = fmt::format("{}-{}", base, i);
  return folder;
}

/// Whether a folder holds anything that a new run would overwrite.
bool holds_run(const fs::path& folder) {
  return path_exists(folder / "model.safetensors") || path_exists(folder / train::kAdapterFile) ||
         !list_folder(folder / "checkpoints").empty();
}

/// The recipe that was named, or the one of the run that is resumed.
std::string recipe_of(const TrainArguments& arguments) {
  if (arguments.resume && arguments.out.empty())
    user_error("--resume needs --out DIR, the folder of the run");
  if (!arguments.recipe.empty()) return arguments.recipe;
  if (!arguments.resume) user_error("expected a recipe, like hearth train recipes/demo.yaml");
  std::string path = arguments.out + "/config.yaml";
  if (!fs::exists(path)) {
    user_error("expected a run to go on with, got no config.yaml in '{}'; try hearth train RECIPE --out {}",
               arguments.out, arguments.out);
  }
  return path;
}

/// On another machine, what describes a language model is in the run folder alone.
void look_into_folder(train::Recipe& recipe, const fs::path& run) {
  train::TextOptions& text = recipe.text;
  if (!train::is_text(recipe)) return;
  // An adapter needs the model itself.
  const bool has_config = !recipe.adapter.wanted() && fs::exists(run / "config.json");
  if (has_config && !fs::exists(text.config_file())) {
    text.model.clear();
    text.config = (run / "config.json").string();
  }
  const bool is_gone = !text.tokenizer.empty() && !fs::exists(text.tokenizer);
  if (is_gone && train::has_tokenizer(run)) text.tokenizer = run.string();
}

/// A run, as every process that has a part in it knows it.
struct Job {
  train::Recipe recipe;
  std::string out;
  bool resume = false;
  std::string dump_gradients;
};

void announce(const train::Trainer& trainer, train::Engine& engine, const Job& job, Terminal& terminal) {
  const train::Recipe& recipe = job.recipe;
  terminal.message("run folder: " + job.out);
  int64_t parameters = 0, all = 0;
  for (const nn::Tensor& tensor : engine.tensors()) {
    const int64_t count = tensor.layout.file_shape.num_elements();
    all += count;
    if (tensor.trainable) parameters += count;
  }
  terminal.message(fmt::format("{}: {} parameters, {} on {} threads; {}", train::model_name(recipe),
                               parameters, recipe.precision, engine.threads().size(),
                               trainer.task().describe()));
  if (const std::string warning = trainer.task().warning(); !warning.empty()) terminal.message(warning);
  if (train::has_adapter(engine)) {
    terminal.message(fmt::format("trainable params: {} || all params: {} || trainable%: {:.4f}", parameters,
                                 all, 100 * static_cast<double>(parameters) / static_cast<double>(all)));
  }
  terminal.message(fmt::format("global batch {} = {} x {}; planned: arena {}, weights and state {}",
                               recipe.batch * recipe.accumulate, recipe.batch, recipe.accumulate,
                               human_bytes(engine.arena_bytes()), human_bytes(engine.kept_bytes())));
  if (const std::vector<int64_t> stages = engine.stage_parameters(); !stages.empty())
    terminal.message(fmt::format("pipeline: stages of {} weights{}", fmt::join(stages, " and "),
                                 engine.options().row_lengths.size() > 1
                                     ? "; rows of several lengths keep one of them at work at a time, "
                                       "data.packing=true all of them"
                                     : ""));
  const std::string warning = exec::override_warning(std::getenv("HSA_OVERRIDE_GFX_VERSION"));
  if (engine.card() != nullptr && !warning.empty()) terminal.message("warning: " + warning);
  if (const gpu::DeviceInfo* card = engine.card()) {
    const exec::Program& program = engine.train_program();
    terminal.message(
        fmt::format("on {} ({}): {} of {} nodes of a step have no kernel for it, the host computes them",
                    card->name, card->pci_address, program.num_host_nodes(), program.graph().nodes.size()));
    for (const auto& [kernel, what] : engine.distrusted())
      terminal.message(fmt::format("not used, for it failed its test: {}: {}", kernel, what));
    for (const std::string& way : engine.dropped_products())
      terminal.message("not used for products: " + way);
  }
}

void conclude(const train::RunSummary& summary, const Job& job, const train::Engine& engine,
              Terminal& terminal) {
  if (summary.interrupted) {
    terminal.message(fmt::format("stopped at step {}; go on with: hearth train --resume --out {}",
                                 summary.steps, job.out));
    return;
  }
  terminal.message(fmt::format("done: {} steps in {:.1f} s, best validation {}", summary.steps,
                               summary.seconds, summary.best));
  terminal.message(fmt::format("run folder: {} (report.html, {}, trainer_log.jsonl)", job.out,
                               train::weights_name(engine)));
}

void check_team(comm::Transport& team) {
  if (const std::string fault = comm::find_fault(team); !fault.empty())
    user_error("expected workers that add up and copy alike, got: {}", fault);
}

/// The workers' cards as a group, where the recipe wants one and it can be trusted; else null, which a
/// sentence explains.
std::shared_ptr<comm::NcclTeam> join_cards(const train::Recipe& recipe, comm::Transport& team, int number,
                                           Terminal& terminal) {
  if (recipe.transport == "host") return nullptr;
  comm::OpenedNccl opened =
      comm::open_nccl(team, exec::choose_card(recipe.device, gpu::list_devices(), gpu::runtime(), number));
  if (team.rank() > 0) return opened.team;
  terminal.message(
      opened.team
          ? fmt::format("sums go between cards by the vendor's library {}, in an order of its own: other "
                        "numbers of cards make other bits",
                        opened.version)
          : fmt::format("sums go through host memory, not between cards: {}", opened.fault));
  return opened.team;
}

/// Trains in this process, and returns what it ends with. `team`: null where it is alone; `memory`: where
/// nobody goes on behind it.
int train_here(const Job& job, const watch::Seat& seat, comm::Transport* team,
               const io::CheckpointMemory* memory = nullptr) {
  if (team != nullptr) check_team(*team);
  const bool leads = team == nullptr || team->rank() == 0, resume = job.resume || seat.attempt > 1;
  Terminal terminal(seat.heartbeat);
  train::Membership member{.team = team, .device = seat.device};
  if (team != nullptr) member.cards = join_cards(job.recipe, *team, seat.device, terminal);
  if (team != nullptr && job.recipe.parallel == "pipeline")
    member.devices = train::gather_stage_devices(train::stage_device(job.recipe, seat.device), *team);
  std::optional<io::RunLock> lock;
  // A killed worker's lock goes a moment after it.
  const auto lock_folder = [&] {
    if (leads && !lock) lock.emplace(job.out, resume ? 5.0 : 0.0);
  };
  // The leader makes what all of them read, and says it if that cannot be.
  if (!leads) team->barrier();
  if (fs::exists(job.out)) lock_folder();
  train::TrainerEvents events{.progress = [&](const train::Progress& p) { terminal.progress(p); },
                              .message =
                                  [&](const std::string& text) {
                                    if (leads) terminal.message(text);
                                  },
                              .stop = seat.stop,
                              .heartbeat = seat.heartbeat,
                              .memory = memory};
  train::Trainer trainer(job.recipe, job.out, std::move(events), std::move(member));
  if (leads && seat.attempt == 1) announce(trainer, trainer.engine(), job, terminal);
  if (leads && !job.dump_gradients.empty()) trainer.dump_gradients(job.dump_gradients);
  make_folder(job.out);
  lock_folder();
  if (leads && team != nullptr) team->barrier();
  const train::RunSummary summary =
      trainer.run({.resume = resume, .new_order = seat.new_order, .reason = seat.reason});
  if (leads) conclude(summary, job, trainer.engine(), terminal);
  return summary.interrupted ? watch::kInterrupted : watch::kDone;
}

int train_alone(const Job& job) {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  // nohup has it ignored.
  if (std::signal(SIGHUP, on_interrupt) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  const auto team = join_launched(job.recipe.devices);
  if (team == nullptr) return train_here(job, {.stop = &stop_requested}, nullptr);
  const watch::Seat seat{.device = team->rank(), .stop = &stop_requested};
  const Ending ending = ending_of([&] { return train_here(job, seat, team.get()); });
  // A process that leaves its group by failing would wait for the others, which wait for it.
  if (!ending.words.empty()) _exit(tell(ending));
  return ending.status;
}

/// Says what is wrong with a device.
bool passes_probe(const train::Recipe& recipe, int device) {
  const Ending ending = ending_of([&] {
    const std::string fault = watch::probe_card({.device = recipe.device, .number = device});
    if (!fault.empty()) Terminal().warn(fmt::format("device {}: {}", device, fault));
    return fault.empty() ? watch::kDone : watch::kMistake;
  });
  return tell(ending) == watch::kDone;
}

int train_supervised(const Job& job) {
  Terminal terminal;
  // Workers come and go; what the last one has left here stays.
  const io::CheckpointMemory memory;
  const auto work = [&](const watch::Seat& seat) {
    const auto team = seat.group == nullptr ? nullptr : seat.group->open(seat.rank);
    const Ending ending = ending_of([&] { return train_here(job, seat, team.get(), &memory); });
    // The others have made it too.
    const bool told = ending.status == watch::kMistake && seat.said->exchange(true);
    return told ? ending.status : tell(ending);
  };
  watch::SupervisorOptions options{
      .size = static_cast<int>(job.recipe.devices),
      .say = [&](const std::string& text) { terminal.warn(text); },
      .num_workers = [&](int num_devices) { return train::num_sharing(job.recipe, num_devices); }};
  if (exec::names_card(job.recipe.device))
    options.probe = [&](int device) { return passes_probe(job.recipe, device); };
  return watch::supervise(work, options);
}

void check_devices(const Job& job, bool launched) {
  const train::Recipe& recipe = job.recipe;
  if (recipe.devices == 1) return;
  if (!recipe.supervise && !launched) {
    user_error(
        "expected supervise=true for devices={}, got false; leave it out, or start them by mpirun -n {}",
        recipe.devices, recipe.devices);
  }
  const bool has_all_weights = recipe.parallel == "data" || recipe.parallel == "zero1";
  if (!has_all_weights && !job.dump_gradients.empty()) {
    user_error("expected parallel=data or zero1 for --dump-gradients, got {}; try devices=1",
               recipe.parallel);
  }
}

/// What is written at the end has its place before anything is computed.
void check_places(const Job& job) {
  expect_place_for_folder(job.out);
  if (!job.dump_gradients.empty()) expect_place_for_file(job.dump_gradients);
}

void run_train(const CLI::App& verb, TrainArguments arguments) {
  std::vector<std::string> overrides = overrides_of(verb);
  // Without a recipe, the first override stands in its place: --resume --out DIR train.epochs=3.
  const bool stands_for_recipe =
      arguments.resume && arguments.recipe.find('=') != std::string::npos && !fs::exists(arguments.recipe);
  if (stands_for_recipe) overrides.insert(overrides.begin(), std::exchange(arguments.recipe, ""));
  const std::string recipe_path = recipe_of(arguments);
  Job job{.recipe = open_recipe(recipe_path, with_launched(std::move(overrides))),
          .out = arguments.out.empty() ? default_folder(recipe_path) : arguments.out,
          .resume = arguments.resume,
          .dump_gradients = arguments.dump_gradients};
  if (job.resume) look_into_folder(job.recipe, job.out);
  if (!job.resume && holds_run(job.out)) {
    user_error("{} holds a run already; add --resume to go on with it, or choose another --out", job.out);
  }
  const bool launched = num_launched() > 1;
  check_devices(job, launched);
  check_places(job);
  if (!job.resume) train::check_first_weights(job.recipe);
  // Who reads what a run says may leave it.
  std::signal(SIGPIPE, SIG_IGN);
  exit_code() = job.recipe.supervise && !launched ? train_supervised(job) : train_alone(job);
}

}  // namespace

void add_train(CLI::App& app) {
  const auto arguments = std::make_shared<TrainArguments>();
  CLI::App* verb = app.add_subcommand("train", "Train a recipe into a run folder");
  verb->add_option("recipe", arguments->recipe, "recipe file, for example recipes/demo.yaml");
  verb->add_option("--out", arguments->out, "run folder (default: runs/NAME)");
  verb->add_flag("--resume", arguments->resume, "go on from the newest complete checkpoint of --out");
  verb->add_option("--dump-gradients", arguments->dump_gradients,
                   "write the first batch's gradients (safetensors)");
  allow_overrides(*verb);
  set_example(*verb, "hearth train recipes/llama-lora.yaml model=MODEL data=FILE.jsonl");
  verb->callback([=] { run_train(*verb, *arguments); });
}

}  // namespace hearth::cli
