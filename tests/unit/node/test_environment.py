"""A workload gets its devices and its owner's variables, but no key to the house."""

from gpufair.node.environment import workload_environment


def test_secrets_stay_out_and_devices_cannot_be_overridden():
    base = {
        "PATH": "/bin",
        "GPUFAIR_TOKEN": "x",
        "GPUFAIR_SERVICE_TOKEN_FILE": "x",
        "GPUFAIR_URL": "x",
        "GPUFAIR_STATE_DIR": "/state",
        "JUPYTER_TOKEN": "x",
        "JUPYTERHUB_API_TOKEN": "x",
        "JPY_API_TOKEN": "x",
        "JPY_PARENT_PID": "17",
        "JUPYTER_PATH": "/share",
    }
    launch = {"MINE": "1", "HF_TOKEN": "the owner's own", "CUDA_VISIBLE_DEVICES": "0,1,2,3", "GPUFAIR_GPUS": "all"}
    env = workload_environment(
        launch, node="n1", workload="w", incarnation=3, devices=("virtual-1",), tag="t", base=base
    )
    assert env == {
        "PATH": "/bin",
        "GPUFAIR_STATE_DIR": "/state",
        "JUPYTER_PATH": "/share",
        "MINE": "1",
        "HF_TOKEN": "the owner's own",
        "CUDA_VISIBLE_DEVICES": "1",
        "GPUFAIR_GPUS": "virtual-1",
        "GPUFAIR_NODE": "n1",
        "GPUFAIR_WORKLOAD": "w",
        "GPUFAIR_INCARNATION": "3",
        "GPUFAIR_TAG": "t",
    }


def test_a_workload_finds_its_own_service_but_its_owners_word_counts():
    base = {"GPUFAIR_STATE_DIR": "/another"}

    def state_dir(launch):
        return workload_environment(
            launch, node="n1", workload="w", incarnation=1, devices=(), tag="t", state_dir="/state", base=base
        )["GPUFAIR_STATE_DIR"]

    assert state_dir({}) == "/state"
    assert state_dir({"GPUFAIR_STATE_DIR": "/mine"}) == "/mine"
