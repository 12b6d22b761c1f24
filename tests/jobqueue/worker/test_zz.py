import time
def test_dbg(platform):
    platform.set(lease_s=1, max_crashes=4, max_attempts=10)
    long = platform.enqueue("test.sleep", 3, s=3)
    [bad] = platform.enqueue("test.crash")
    platform.worker("--concurrency", "4", JOBSPLATFORM_LOG_LEVEL="INFO")
    end=time.monotonic()+14
    last=None
    def look():
        nonlocal last
        st=[(v.state,v.generation,v.attempts_used,v.crashes) for v in map(platform.job,[bad]+long)]
        if st!=last:
            print(round(time.monotonic()-end+14,2), st, flush=True); last=st
        return time.monotonic()>end
    platform.until(look, 20)
    print(platform.log.read_text())
    for j in [bad]+long:
        for a in platform.attempts(j): print(j, a.generation,a.outcome,a.worker,a.service_ms,a.message)
